"""The hostile tenant: its report."""
