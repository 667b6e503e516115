"""A policy hook on loopback that keeps its questions, and answers or misbehaves."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

ADMIT = {"decision": "admit"}


@dataclass
class Hook:
    """`answer` is sent as JSON, or as it is; `release` ends the wait of one that sleeps."""

    port: int = 0
    answer: object = field(default_factory=lambda: ADMIT)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    sleeps: bool = False
    is_endless: bool = False
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    release: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/policy"

    @property
    def questions(self) -> list[dict[str, Any]]:
        """What was asked, without the envelope."""
        return [json.loads(body)["data"] for _, body in self.got]

    def verified(self, secret: str) -> list[Any]:
        """The questions, as the standard's own library reads them. Raises for a bad signature."""
        return [Webhook(secret).verify(body, headers) for headers, body in self.got]


@contextmanager
def a_hook() -> Iterator[Hook]:
    """One that runs until the end of the block."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.got.append(({n.lower(): v for n, v in self.headers.items()}, body))
            hook.arrived.release()
            if hook.sleeps:
                hook.release.wait(20)
            said = hook.answer
            sent = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(hook.status)
            for name, value in hook.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(2**31 if hook.is_endless else len(sent)))
            self.end_headers()
            try:
                self.wfile.write(sent)
                while hook.is_endless and not hook.release.is_set():
                    self.wfile.write(b" " * 65_536)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hook
    finally:
        hook.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
