"""A client with very low processor use, because real clients don't share the portal's cores."""

import asyncio
import time
from urllib.parse import urlsplit

from tests.bench.site import Site

# The web closes idle connections after 5 s; a request must not use one at that moment.
IDLE_S = 2.0

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Lines:
    """Sends POSTs with the token of a role, on persistent connections."""

    def __init__(self, site: Site, part: str) -> None:
        self._host = urlsplit(site.url).netloc
        self._token = site.tokens[part]
        self._free: list[tuple[float, Line]] = []

    async def post(self, path: str, body: bytes, key: str) -> tuple[int, bytes]:
        """Status and body of the answer to a POST with an idempotency key."""
        line = await self._line()
        reader, writer = line
        writer.write(
            f"POST /api/v1{path} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Authorization: Bearer {self._token}\r\nIdempotency-Key: {key}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("\r\ncontent-length:")[2].partition("\r\n")[0])
        answer = await reader.readexactly(length)
        self._free.append((time.monotonic(), line))
        return int(head.split(maxsplit=2)[1]), answer

    def close(self) -> None:
        """Closes all connections; no request is in progress."""
        for _, (_, writer) in self._free:
            writer.close()
        self._free.clear()

    async def _line(self) -> Line:
        while self._free:
            since, line = self._free.pop()
            if time.monotonic() - since < IDLE_S:
                return line
            line[1].close()
        return await asyncio.open_connection(*self._host.split(":"))
