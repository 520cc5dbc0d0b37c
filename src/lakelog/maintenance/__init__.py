"""Background agents, named by what they do. One process runs each of them in a cell; all steps can be repeated."""

from lakelog.maintenance.maintenance import Maintenance

__all__ = ["Maintenance"]
