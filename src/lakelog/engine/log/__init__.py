"""The log: publish, commit, reserve idempotency keys, fetch, and the directory of topics."""
