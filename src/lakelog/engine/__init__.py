"""The engine: the only package that loads state, makes decisions and writes storage, with a module per operation."""

from lakelog.engine.engine import Engine, EngineSettings
from lakelog.engine.log.publish import Frame, FrameReceipt, Numbered
from lakelog.engine.log.topics import Described, Purge

__all__ = ["Described", "Engine", "EngineSettings", "Frame", "FrameReceipt", "Numbered", "Purge"]
