"""The site under load: a running one with its credentials, or a new one."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from devtools.launch.embedded import free_port
from tests.bench.machine import ROOT, report

READY = "The portal is ready"
READY_SECONDS = 400


class SiteDidNotStart(Exception):
    """The launcher ended or was not ready in time; the message has its output."""


@dataclass(frozen=True)
class Site:
    """A site: its address, its credentials, and the folder of its launcher."""

    url: str
    tokens: Mapping[str, str]
    passwords: Mapping[str, Mapping[str, str]]
    var: Path
    launcher: int = 0
    ready_seconds: float | None = None

    def client(self, part: str) -> httpx.AsyncClient:
        """A REST client with the token of a role, such as `researcher`."""
        return httpx.AsyncClient(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {self.tokens[part]}"},
            timeout=30,
            # The web closes idle connections after 5 s; a request must not use one at that moment.
            limits=httpx.Limits(max_keepalive_connections=64, keepalive_expiry=2),
        )

    async def session(self, part: str) -> str:
        """Signs in as a browser does; returns the value of the Cookie header."""
        person = self.passwords[part]
        async with httpx.AsyncClient(base_url=self.url, follow_redirects=False) as browser:
            await browser.get("/sign-in")
            token = next(v for k, v in browser.cookies.items() if k.endswith("csrf"))
            answer = await browser.post(
                "/sign-in",
                data={**person, "csrfmiddlewaretoken": token},
                headers={"Origin": self.url},
            )
            if answer.status_code != httpx.codes.FOUND:
                raise SiteDidNotStart(f"{person['username']} can't sign in: {answer.status_code}")
            return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def site_options(parser: argparse.ArgumentParser) -> None:
    """Adds --url and --keys of a running site, and --out for the JSON."""
    parser.add_argument("--url", help="a running site; without it one is started and removed")
    parser.add_argument("--keys", type=Path, default=ROOT / "var" / "demo.json")
    parser.add_argument("--out", type=Path, help="folder for the JSON")


@contextmanager
def site_of(options: argparse.Namespace) -> Iterator[Site]:
    """The site that the options name."""
    if options.url:
        yield _site(options.url, options.keys)
        return
    with TemporaryDirectory(prefix="bench-") as folder, launched(Path(folder) / "var") as own:
        yield own


def bench_run(
    options: argparse.Namespace,
    measure: Callable[[Site, argparse.Namespace], Mapping[str, Any]],
) -> None:
    """Runs `measure` on the site that the options name, and writes and prints the result."""
    with site_of(options) as site:
        result = measure(site, options)
    report(result["bench"], result, options.out)


@contextmanager
def launched(var: Path) -> Iterator[Site]:
    """Starts a site in `var` as `make demo` does; removes it afterwards."""
    port, began = free_port(), time.monotonic()
    command = [sys.executable, "-m", "devtools.local", "--var", str(var), "--port", str(port)]
    environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    # One program with one token represents hundreds of people.
    environment |= dict.fromkeys(("CALLS_PER_TOKEN", "CALLS_PER_ADDRESS"), "1000000")
    environment["QUOTES_PER_PERSON"] = "1000000"
    # A file, because an unread pipe would block the launcher when it is full.
    var.mkdir(parents=True, exist_ok=True)
    said = var / "launcher.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        _wait_until_ready(process, said)
        yield _site(
            f"http://localhost:{port}",
            var / "demo.json",
            launcher=process.pid,
            ready_seconds=round(time.monotonic() - began, 1),
        )
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        subprocess.run([*command[:5], "--clean"], cwd=ROOT, env=environment, check=True)


def _wait_until_ready(process: "subprocess.Popen[bytes]", said: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while READY not in said.read_text(encoding="utf-8", errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SiteDidNotStart(said.read_text(encoding="utf-8", errors="replace"))
        time.sleep(0.05)


def _site(url: str, keys: Path, *, launcher: int = 0, ready_seconds: float | None = None) -> Site:
    found = json.loads(keys.read_text(encoding="utf-8"))
    return Site(url, found["tokens"], found["passwords"], keys.parent, launcher, ready_seconds)
