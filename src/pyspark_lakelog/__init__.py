"""Makes `format("lakelog")` known to Spark, which looks for a module of this name: nothing has to be registered."""

from lakelog.spark.source import LakelogSource as DefaultSource

__all__ = ["DefaultSource"]
