"""Pages are compressed for browsers that accept it."""

from __future__ import annotations

import asyncio
import gzip

from tests.unit.console.browser import browsing, logged_in


def test_a_page_is_compressed_for_a_browser_that_accepts_it() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            plain = await browser.get("marks")
            reply = await browser.call("GET", "/console/marks", headers={"accept-encoding": "br, gzip"})
            assert "content-encoding" not in plain.headers
            assert reply.headers["content-encoding"] == "gzip" and plain.headers["vary"] == "accept-encoding"
            assert int(reply.headers["content-length"]) == len(reply.body) < len(plain.body)
            assert gzip.decompress(reply.body)[:1000] == plain.body[:1000]
            headers = {"accept-encoding": "gzip", "sec-fetch-site": "same-origin"}
            form = await browser.call("POST", "/console/nothing/here", headers=headers)
            assert "content-encoding" not in form.headers, "the response to a form may have a secret"

    asyncio.run(scenario())
