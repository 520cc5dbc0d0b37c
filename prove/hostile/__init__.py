"""A hostile tenant beside a normal one on the same servers."""
