"""Large installations: a day of idempotency keys, and rolls of many partitions. No processes of Lakelog are started."""
