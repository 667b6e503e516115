"""What all commands share: the signed-in portal, and the zone in which it prints times."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from gpu_client.api import Client
from gpu_client.config import config_load
from gpu_client.output import errors_shown
from gpu_client.problems import PortalUnreachable, Problem
from gpu_client.words import Clock, UnknownZone, clock_of_zone


def _zone_checked(name: str) -> str:
    """Refuses an unknown zone before anything is sent."""
    try:
        clock_of_zone(name or "UTC")
    except UnknownZone as error:
        raise typer.BadParameter(str(error)) from None
    return name


Json = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
Zone = Annotated[
    str,
    typer.Option(
        envvar="GPU_ZONE",
        callback=_zone_checked,
        help="Time zone, such as UTC; that of your account if not given.",
        show_default=False,
    ),
]


@contextmanager
def portal(*, is_json: bool) -> Iterator[Client]:
    """Opens the portal; errors end the program with their sentence."""
    with errors_shown(is_json=is_json), Client(config_load(os.environ)) as client:
        yield client


def clock_of(client: Client, zone: str) -> Clock:
    """Returns the clock of `zone`, or of the account; else that of this machine.

    The work is done when its times are printed, so a portal that does not answer is no error.
    """
    try:
        # A portal of an earlier version does not say the zone.
        name = zone or client.me().get("time_zone")
        return clock_of_zone(name) if name else Clock()
    except (UnknownZone, PortalUnreachable, Problem):
        return Clock()
