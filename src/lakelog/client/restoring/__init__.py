"""Restores what the files of topics have more than a restored database."""
