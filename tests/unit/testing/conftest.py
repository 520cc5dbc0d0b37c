"""The fixture of the plugin, also where the installed package does not list the plugin yet."""

from __future__ import annotations

from lakelog.testing.plugin import lakelog_memory as lakelog_memory
