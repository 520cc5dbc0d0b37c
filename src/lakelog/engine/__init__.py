"""The engine: one module per verb; the only place that loads state, decides and writes storage."""

from lakelog.engine.engine import Engine, EngineSettings
from lakelog.engine.log.fetch import Fetched, FetchLimits
from lakelog.engine.log.publish import Frame, FrameReceipt, Numbered
from lakelog.engine.log.topics import Described, Purge

__all__ = [
    "Described",
    "Engine",
    "EngineSettings",
    "FetchLimits",
    "Fetched",
    "Frame",
    "FrameReceipt",
    "Numbered",
    "Purge",
]
