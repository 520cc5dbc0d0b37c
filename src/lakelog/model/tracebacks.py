"""The traceback of a dead letter: its maximum length, and how a longer one is shortened."""

from __future__ import annotations

MAX_TRACEBACK_BYTES = 8192
_HEAD_SHARE = 4


def cut_traceback(text: str, most: int = MAX_TRACEBACK_BYTES) -> str:
    """Return the text in its stored form: valid UTF-8 without NULs, at most `most` bytes long.

    A longer text loses lines from its middle: its last lines name the error and the innermost frames.
    """
    raw = text.replace("\0", "").encode(errors="replace")
    if len(raw) <= most:
        return raw.decode()
    head = raw[: most // _HEAD_SHARE]
    head = head[: head.rfind(b"\n") + 1] or head
    mark = b"\n  [... %d bytes left out ...]\n" % (len(raw) - most)
    room = most - len(head) - len(mark)
    tail = raw[-room:]
    # Begin at the start of a line, unless the last line is too long.
    if (line_end := tail.find(b"\n", 0, room // 2)) >= 0:
        tail = tail[line_end + 1 :]
    return b"".join([head.rstrip(b"\n"), mark, tail]).decode(errors="ignore")
