"""The two storage protocols, catalog and partition store, and their implementations in memory and on PostgreSQL."""
