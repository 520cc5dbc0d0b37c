"""PostgreSQL, as far as it needs no database."""
