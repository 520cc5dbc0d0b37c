"""The attempts and responses of client processes: as files, and as the columns that the checks read."""
