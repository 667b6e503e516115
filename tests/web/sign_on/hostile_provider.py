"""A provider of single sign-on that says what a test wants, true or not, fast or slow."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jws
from joserfc.jwk import KeySet, RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
NEW_KEY = RSAKey.generate_key(2048, {"kid": "2", "use": "sig", "alg": "RS256"})
PUBLIC = KeySet([KEY]).as_dict(private=False)
STEP_SECONDS = 0.5


@dataclass
class Answer:
    """What it says at an address."""

    body: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drips: str = ""
    """Sends the head or the body byte by byte."""


@dataclass
class Hostile:
    """Its port, what it says by path, and the forms that it got."""

    port: int
    says: dict[str, Answer] = field(default_factory=dict)
    got: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def claims(self, way: str, **changed: object) -> dict[str, Any]:
        """The claims of a valid ID token for the attempt; None removes one."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": "portal",
            "sub": "mara",
            "iat": now,
            "exp": now + 300,
            "nonce": parse_qs(urlsplit(way).query)["nonce"][0],
            "groups": ["gpu-users"],
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def gives(self, token: object, keys: object = PUBLIC, **more: object) -> None:
        """Sets the answers for the next code."""
        said = {"access_token": "a", "token_type": "Bearer", "id_token": token, **more}
        self.says |= {"/token": Answer(said), "/jwks": Answer(keys)}


def signed(claims: dict[str, Any], key: RSAKey = KEY, **header: object) -> str:
    head = {"alg": "RS256", "kid": key.kid, **header}
    # With escapes, so that halves of letters can be sent.
    registry = jws.JWSRegistry(strict_check_header=False)
    return jws.serialize_compact(head, json.dumps(claims).encode(), key, registry=registry)


@contextmanager
def a_hostile_provider() -> Iterator[Hostile]:
    """One that runs until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    hostile = Hostile(server.server_address[1])
    server.RequestHandlerClass = _handler(hostile)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hostile
    finally:
        server.shutdown()
        server.server_close()


def _handler(hostile: Hostile) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            """Writes nothing."""

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            path = urlsplit(self.path).path
            hostile.got.append((path, parse_qs(sent)))
            answer = hostile.says.get(path, Answer({"error": "no"}, 404))
            body = answer.body
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            lines = {"Content-Length": str(len(data)), **answer.headers}
            head = f"HTTP/1.1 {answer.status} X\r\nConnection: close\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            with suppress(OSError):
                self._send(head.encode(), slowly=answer.drips == "head")
                self._send(b"\r\n" + data, slowly=answer.drips == "body")
            self.close_connection = True

        def _send(self, data: bytes, *, slowly: bool) -> None:
            if not slowly:
                self.wfile.write(data)
                return
            for at in range(len(data)):
                self.wfile.write(data[at : at + 1])
                self.wfile.flush()
                time.sleep(STEP_SECONDS)

        do_GET = do_POST = _answer

    return Handler


Attack = Callable[[Hostile, str], None]
