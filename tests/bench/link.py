"""A REST client for load: one connection that is kept, and nothing that costs processor.

The client of a benchmark shares the cores with the site. A general client takes longer for a
request than the site does when it has many connections.
"""

import asyncio
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.bench.site import Site


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and the body's JSON."""

    status: int
    raw: bytes

    def json(self) -> Any:  # noqa: ANN401 (any JSON)
        """Parses the body."""
        return json.loads(self.raw)


class Broken(Exception):
    """The connection ended in the middle of an answer, or the answer has no length."""


@dataclass(slots=True)
class Link:
    """A connection of one client, which sends a request when it has the answer to the last."""

    host: str
    port: int
    head: str
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None)

    @classmethod
    def to(cls, site: Site, part: str) -> "Link":
        """A connection to the site with the token of a role."""
        address = urlsplit(site.url)
        host, port = address.hostname or "", address.port or 80
        head = (
            f"Host: {address.netloc}\r\nAuthorization: Bearer {site.tokens[part]}\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n"
        )
        return cls(host, port, head)

    async def post(self, path: str, body: object, headers: Mapping[str, str]) -> Answer:
        """Sends a request below /api/v1. Raises Broken."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        sent = json.dumps(body).encode()
        own = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        length = f"Content-Length: {len(sent)}\r\n\r\n"
        writer.write(f"POST /api/v1{path} HTTP/1.1\r\n{self.head}{own}{length}".encode() + sent)
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:-2])
            raw = await reader.readexactly(int(fields["content-length"]))
        except (asyncio.IncompleteReadError, KeyError) as error:
            raise Broken(path) from error
        if fields.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        return Answer(int(lines[0].split()[1]), raw)

    async def close(self) -> None:
        """Ends the connection."""
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()
