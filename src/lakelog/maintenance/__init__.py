"""Background agents, named by what they do. Every step can be repeated and may run in several processes at once."""

from lakelog.maintenance.maintenance import Maintenance

__all__ = ["Maintenance"]
