"""What Spark jobs decide and convert by themselves; no session is started here."""
