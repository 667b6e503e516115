"""`gpu-agent notebook`: runs a notebook of a booking, and its tunnels to the portal.

The agent starts it as the owner's account. The notebook's program listens on a UNIX socket that only
this account can open. This process keeps some connections to the portal's proxy open, each of which
becomes a pipe to that socket as soon as the proxy sends something. So nothing listens on the network,
and the agent itself, which may be root, connects to nothing that the account chooses.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import pwd
import signal
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from agent.ports.handover import write_atomic
from agent.ports.notebook_programs import LOG, SECRET, SOCKET, STATUS
from wire import LINE_MAX_LENGTH

UPGRADE = "gpu-notebook"
_IDLE = 6
_MOST = 64
_START_LIMIT_S = 90.0
_LOOK_EVERY_S = 0.1
_END_LIMIT_S = 4.0
_CONNECT_LIMIT_S = 10.0
_LOG_EVERY_S = 10.0
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.25, 5.0
_PIECE = 1 << 16
_LOG_BYTES = 1 << 20


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns when the notebook has ended: 0 after a signal, else 1."""
    options = _parser().parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    socket = str(options.folder / SOCKET)
    values = {**_account_environment(), **environment}
    notebook = Notebook(options.folder, [each.replace("{socket}", socket) for each in command], values)
    secret = (options.folder / SECRET).read_text()
    tunnels = Tunnels(options.portal, f"{options.address}:{secret}", socket)
    return asyncio.run(_serve(notebook, tunnels))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu-agent notebook", description="Started by the agent.")
    parser.add_argument("--folder", type=Path, required=True, help="the notebook's folder")
    parser.add_argument("--portal", required=True, help="address of the portal's notebook proxy")
    parser.add_argument("--address", required=True, help="the notebook's name at the proxy")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _account_environment() -> dict[str, str]:
    """What a login would set."""
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:
        return {}
    return {
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell,
    }


async def _serve(notebook: "Notebook", tunnels: "Tunnels") -> int:
    main_task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: main_task.cancel() if main_task else None)
    try:
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(tunnels.keep())
            await notebook.run()
            keeping.cancel()
    except asyncio.CancelledError:
        return 0
    return 1


class Notebook:
    """The site's program. `status.json` in its folder says how it is."""

    def __init__(self, folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._command = command
        self._environment = environment
        self._log = folder / LOG

    async def run(self) -> None:
        """Returns when the program has ended. Ends it when cancelled."""
        self._say("starting")
        home = self._environment.get("HOME", "/")
        try:
            with self._log.open("ab") as log:
                # Not a pipe, which others that it started may keep open.
                child = await asyncio.create_subprocess_exec(
                    *self._command,
                    cwd=home if os.path.isdir(home) else "/",
                    env=self._environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            self._say("failed", f"{self._command[0]}: {error.strerror}")
            return
        try:
            await self._follow(child)
        finally:
            await _end(child)

    async def _follow(self, child: asyncio.subprocess.Process) -> None:
        async with asyncio.TaskGroup() as group:
            bounding = group.create_task(self._log_bound())
            starting = group.create_task(self._ready())
            status = await child.wait()
            was_ready = starting.done() and starting.result()
            starting.cancel()
            bounding.cancel()
        state = "ended" if was_ready else "failed"
        self._say(state, f"its program ended with status {status}: {self._last_line()}")

    async def _ready(self) -> bool:
        """Says once that it is ready; whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_LIMIT_S):
                while not await _answers(str(self._folder / SOCKET)):
                    await asyncio.sleep(_LOOK_EVERY_S)
                self._say("ready")
                return True
        why = f"it did not listen on its socket within {_START_LIMIT_S:g} s: {self._last_line()}"
        self._say("failed", why)
        return False

    async def _log_bound(self) -> None:
        """Empties the log when it is long. Who writes to it continues at its beginning."""
        while True:
            await asyncio.sleep(_LOG_EVERY_S)
            if self._log.stat().st_size > _LOG_BYTES:
                os.truncate(self._log, 0)

    def _last_line(self) -> str:
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _PIECE))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _say(self, state: str, error: str = "") -> None:
        plain = "".join(each if each.isprintable() else " " for each in error)
        said = {"state": state, "error": plain[:LINE_MAX_LENGTH]}
        write_atomic(self._folder / STATUS, json.dumps(said))


async def _answers(socket: str) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.close()
    return True


async def _end(child: asyncio.subprocess.Process) -> None:
    """TERM, and KILL a little later."""
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
        try:
            async with asyncio.timeout(_END_LIMIT_S):
                await child.wait()
        except TimeoutError:
            child.kill()


class Tunnels:
    """Connections to the portal's proxy: some that wait, and those that are pipes to the notebook."""

    def __init__(self, portal: str, who: str, socket: str) -> None:
        parts = urlsplit(portal)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._head = (
            f"GET /tunnel HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n"
            f"Authorization: Basic {base64.b64encode(who.encode()).decode()}\r\n\r\n"
        ).encode()
        self._socket = socket
        self._idle = 0
        self._open = 0
        self._changed = asyncio.Event()
        self._backoff = _FIRST_BACKOFF_S

    async def keep(self) -> None:
        """Keeps some connections waiting, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                while self._idle < _IDLE and self._open < _MOST:
                    self._idle += 1
                    self._open += 1
                    group.create_task(self._one())
                await self._changed.wait()

    async def _one(self) -> None:
        waits = True
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                reader, writer = await self._connect()
            async with contextlib.AsyncExitStack() as stack:
                stack.callback(writer.close)
                self._backoff = _FIRST_BACKOFF_S
                first = await reader.read(_PIECE)
                waits = False
                self._idle -= 1
                self._changed.set()
                if first:
                    await self._pipe(first, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            if waits:
                # Counts as waiting meanwhile, so that no other one is opened in its place.
                await asyncio.sleep(self._backoff)
                self._backoff = min(2 * self._backoff, _LAST_BACKOFF_S)
        finally:
            self._idle -= waits
            self._open -= 1
            self._changed.set()

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        """Raises OSError, IncompleteReadError and LimitOverrunError."""
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(writer.close)
            writer.write(self._head)
            _accepted_check(await reader.readuntil(b"\r\n\r\n"))
            stack.pop_all()
        return reader, writer

    async def _pipe(self, first: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._socket)
        try:
            inner_writer.write(first)
            await pipe_both((reader, inner_writer), (inner_reader, writer))
        finally:
            inner_writer.close()


def _accepted_check(answer: bytes) -> None:
    if answer.split(None, 2)[1:2] != [b"101"]:
        raise ConnectionRefusedError(answer[:60])


async def pipe_both(*ways: tuple[StreamReader, StreamWriter]) -> None:
    """Copies both ways until one of them ends. A slow reader slows its writer down."""
    copies = [asyncio.create_task(_copy(*way)) for way in ways]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in copies:
            each.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
