"""A site's program in small: `python -m tests.features.notebooks.program SOCKET`.

It says as JSON what it got, sets cookies, leads away, streams, and echoes on WebSockets.
"""

import json
import os
import subprocess
import sys
from typing import Any

import uvicorn

PNG = b"\x89PNG" + bytes(range(256)) * 4_000


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
    """See ASGI."""
    if scope["type"] == "websocket":
        await _echo(receive, send)
        return
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    status, headers, answer = _answer(scope, body)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def _answer(scope: dict[str, Any], body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    match scope["path"]:
        case "/cookies":
            theirs = (b"mine=1; Path=/; Domain=localhost", b"gpu-notebook=stolen", b"portal-session=x")
            return 200, [(b"set-cookie", each) for each in theirs], b"set"
        case "/away":
            return 302, [(b"location", b"http://localhost/t/helix/"), (b"alt-svc", b"h3")], b""
        case "/large":
            return 200, [(b"content-length", str(len(PNG)).encode())], PNG
        case "/end":
            os._exit(3)
    got = {
        "method": scope["method"],
        "target": (
            scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        ).decode(),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": len(body),
        "environment": {name: value for name, value in os.environ.items() if "GPU" in name or "CUDA" in name},
        "pid": os.getpid(),
        "kernel": KERNEL.pid,
    }
    return 200, [(b"content-type", b"application/json")], json.dumps(got).encode()


async def _echo(receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


if __name__ == "__main__":
    # A kernel: a child in a session of its own, which nobody ends with its parent.
    KERNEL = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    uvicorn.run(app, uds=sys.argv[1], log_level="warning")
