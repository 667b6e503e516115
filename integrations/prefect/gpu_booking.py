"""Prefect 3: a block for the portal, with which a flow books GPUs for a while.

Copy this file next to your flows, install the client from a checkout of the portal
(`pip install '.[cli]'`, see docs/cli.md; it is in no package index) and save a block:

    GpuPortal(url="https://gpu.example.org", token="gpup_pat_…").save("gpu")

    @flow
    def train():
        with GpuPortal.load("gpu").booking("1 h100 2h", project="folding") as number:
            subprocess.run(["gpu-job-step", number], check=True)
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from prefect.blocks.core import Block
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from pydantic import SecretStr

from gpu_client.api import Client
from gpu_client.config import Config

OVER = frozenset({"ended", "refused", "rejected", "expired", "cancelled", "failed"})
RUNS = frozenset({"active", "pausing", "paused", "ending"})


class BookingOver(Exception):
    """The booking ended before it had its GPUs."""


class GpuPortal(Block):
    """The portal's address, and a token that acts for the flow."""

    _block_type_name = "GPU portal"
    _block_type_slug = "gpu-portal"

    url: str
    token: SecretStr
    poll_seconds: float = 10.0

    def client(self) -> Client:
        """Returns a connection, which the caller closes."""
        return Client(Config(self.url, self.token.get_secret_value()))

    @contextmanager
    def booking(
        self,
        request: str,
        *,
        project: str,
        name: str = "",
        step: str = "",
        wait_seconds: float = 24 * 3600,
        **more: Any,
    ) -> Iterator[str]:
        """Books GPUs, waits until they are ready, yields the number, and releases them at the end.

        A flow run that is tried again finds its earlier booking; `step` tells several bookings of
        one run apart. `more` are further fields of the API, such as `tier` and `labels`.

        Raises:
            gpu_client.problems.Problem: the portal refuses; it has the API's sentence.
            BookingOver: the booking ended before its start.
            TimeoutError: it has no GPUs after `wait_seconds`.
        """
        wanted = {"project": project, "request": request, "name": name, **more}
        run = flow_run.id or str(uuid4())
        key = str(uuid5(NAMESPACE_URL, "/".join(("prefect", run, step, request))))
        with self.client() as client:
            made = client.book({k: v for k, v in wanted.items() if v}, key=key)
            try:
                yield self._ready(client, made, wait_seconds)
            finally:
                _end(client, str(made["number"]))

    def _ready(self, client: Client, made: Mapping[str, Any], wait_seconds: float) -> str:
        number, state = str(made["number"]), made["state"]
        until = time.monotonic() + wait_seconds
        while state != "active":
            if state in OVER:
                raise BookingOver(f"{number} is {state}.")
            if time.monotonic() >= until:
                raise TimeoutError(f"{number} is still {state} after {wait_seconds:.0f} s.")
            time.sleep(self.poll_seconds)
            state = client.booking(number)["state"]
        if flow_run.id:
            get_run_logger().info("%s is active.", number)
        return number


def _end(client: Client, number: str) -> None:
    state = client.booking(number)["state"]
    if state in RUNS:
        client.release(number)
    elif state not in OVER:
        client.cancel(number)
