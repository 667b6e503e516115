"""A mail server that keeps what it is sent, or says no."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default


class Sink(socketserver.ThreadingTCPServer):
    """Listens on a free port of loopback. `answers` are its words to RCPT TO, by address."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Talk)
        self.answers: dict[str, str] = {}
        self.letters: list[EmailMessage] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Talk(socketserver.StreamRequestHandler):
    server: Sink

    def handle(self) -> None:
        self._say("220 sink")
        for line in self.rfile:
            words = line.decode().strip()
            verb = words[:4].upper()
            if verb == "RCPT":
                address = words.partition("<")[2].partition(">")[0]
                self._say(self.server.answers.get(address, "250 fine"))
            elif verb == "DATA":
                self._say("354 go on")
                self._take()
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 fine")

    def _take(self) -> None:
        lines = []
        for line in self.rfile:
            if line == b".\r\n":
                break
            lines.append(line.removeprefix(b"."))
        self.server.letters.append(message_from_bytes(b"".join(lines), policy=default))
        self._say("250 taken")

    def _say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())


@contextmanager
def a_sink() -> Iterator[Sink]:
    """One that runs until the end of the block."""
    with Sink() as sink:
        thread = threading.Thread(target=sink.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield sink
        finally:
            sink.shutdown()
            thread.join()
