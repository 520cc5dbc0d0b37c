"""The soak: its figures, its verdicts, its page."""
