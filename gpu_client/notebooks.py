"""The command `gpu notebook`: work on a booking in the browser."""

import time
from typing import Annotated

import typer

from gpu_client.output import json_print, line_print
from gpu_client.problems import Problem
from gpu_client.session import Json, portal
from gpu_client.watching import Reference

LOOK_SECONDS = 1.0
ON_THE_WAY = ("asked", "starting")


def notebook(
    reference: Reference,
    program: Annotated[str, typer.Option(help="A name of the node's list; the first one without it.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End it, with what was not saved.")] = False,
    is_json: Json = False,
) -> None:
    """Start JupyterLab, or what the site has, on a running booking, and print its address."""
    with portal(is_json=is_json) as client:
        if end:
            client.notebook_end(reference)
            line_print("It ends within seconds.")
            return
        found = client.notebook(reference, program)
        while found["state"] in ON_THE_WAY:
            # The portal ends what does not start within three minutes.
            time.sleep(LOOK_SECONDS)
            found = client.notebook_read(reference)
        if found["state"] != "ready":
            raise Problem({"status": 409, "detail": f"It {found['state']}: {found['reason']}"})
        if is_json:
            json_print(found)
        else:
            line_print(f"{found['program']} on {found['node']}: {found['url']}")
