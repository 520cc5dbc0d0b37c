"""What client processes attempted and were told: as files, and as the columns that the checks read."""
