"""The limits of what a caller may send; checked while reading, never after."""

MAX_BODY_BYTES = 8 << 20
MAX_MESSAGE_BYTES = 1 << 20
MAX_KEY_BYTES = 1024
MAX_HEADERS = 64
MAX_HEADER_BYTES = 4096
MAX_BATCH_MESSAGES = 10_000
MAX_EXPANDED_BYTES = 64 << 20
MAX_EXPANSION = 100
MAX_NAME_LENGTH = 120
MAX_IDEMPOTENCY_KEY_BYTES = 1024
MAX_PARTITIONS = 10_000
MAX_TAGS = 64
MAX_METADATA_BYTES = 16 << 10
MAX_WAIT_MS = 30_000
MAX_EXPIRES_MS = 7900 * 365 * 86_400_000
"""The longest relative expiry, so that it ends before the year 9999."""
MAX_DELAY_MS = 366 * 86_400_000
"""The longest delay of a message: 366 days."""
MAX_FETCH_BYTES = 16 << 20
MAX_OWNER_BYTES = 200
"""The longest id of an owner, a member or a request, in bytes of UTF-8."""
MAX_JOINED_TOPICS = 100
"""The largest number of topics that one member of a group reads."""
MAX_FIELD_LENGTH = 1024
"""The largest number of characters in the name of a key field."""
MAX_DURATION_MS = 100 * 365 * 86_400_000
"""The longest duration in the settings of a topic: 100 years."""
