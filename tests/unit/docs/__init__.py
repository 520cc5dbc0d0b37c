"""The project's texts against its code."""
