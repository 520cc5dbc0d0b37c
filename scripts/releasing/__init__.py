"""Builds a release and checks it. Uploading and tagging are the last steps of a person."""
