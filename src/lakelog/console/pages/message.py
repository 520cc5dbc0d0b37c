"""One message: its content, and its story in each group."""

from __future__ import annotations

import asyncio

from lakelog.client.reading.masking import masked_story, masks_of
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.console.message_rows import row_of
from lakelog.console.page import Page, Values, View
from lakelog.console.pages.messages import copies_of
from lakelog.errors import LakelogError
from lakelog.model.masks import HIDDEN
from lakelog.model.message import parse_message_id


async def _show(view: View) -> Values:
    message_id, topic = view.path["message"], view.query.get("topic") or None
    story, message = await asyncio.gather(
        view.log.message_story(message_id, topic=topic),
        _content(view, message_id, topic),
    )
    if message is None and story.topic is not None and topic is None:
        message = await _content(view, message_id, story.topic)
    masks = HIDDEN if story.topic is None else masks_of(await view.log.topic(story.topic).describe())
    row = None if message is None else row_of(message, masks)
    copies = []
    if story.topic is not None and story.partition is not None and story.offset is not None:
        copies = copies_of(story.topic, story.partition, story.offset, 1)
    return {
        "story": masked_story(story, masks),
        "row": row,
        "copies": copies,
        "origin": (story.lineage or "").partition("#")[0],
    }


async def _content(view: View, message_id: str, topic: str | None) -> ReceivedMessage[object] | None:
    """Return the message; None if its topic is not known, it was removed, or the viewer may not read it."""
    if topic is None or not view.viewer.may("read"):
        return None
    try:
        _, partition, offset = parse_message_id(message_id)
        page = await view.log.topic(topic).fetch(partition, offset=offset, limit=1)
    except LakelogError:
        return None
    return next(iter(page.messages), None)


PAGE = Page(name="message", path="m/{message}", title="Message {message}", show=_show)
