"""`gpu login` and `gpu logout`."""

import os
import socket
import time
from typing import Annotated

import typer
from rich.text import Text

from gpu_client.api import Client
from gpu_client.config import Config, config_path, config_save
from gpu_client.output import console, errors_shown, json_print, line_print
from gpu_client.problems import Problem

PENDING = frozenset({"authorization_pending", "slow_down"})


def login(
    url: Annotated[str, typer.Option(prompt="Address of the portal", envvar="GPU_URL")],
    token: Annotated[
        str,
        typer.Option(
            envvar="GPU_TOKEN", help="Save this token instead of confirming in a browser."
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the new token.")] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print the API's JSON.")] = False,
) -> None:
    """Sign in by confirming a code in a browser. Saves the address and a token for you only."""
    with errors_shown(is_json=is_json):
        if not token:
            token = _token_of_browser(url.strip(), name or f"gpu on {socket.gethostname()}"[:80])
        config = Config(url.strip(), token.strip())
        with Client(config) as client:
            me = client.me()
    path = config_save(config, os.environ)
    if is_json:
        json_print(me)
    else:
        line_print(f"Signed in to {me['tenant']['name']} as {me['name']}. Saved in {path}.")


def logout() -> None:
    """Delete the saved token. It stays valid until you revoke it on the settings page."""
    config_path(os.environ).unlink(missing_ok=True)
    line_print("Signed out.")


def _token_of_browser(url: str, name: str) -> str:
    """Returns the token that a person grants in a browser. Raises Problem if it is declined."""
    with Client(Config(url, "")) as client:
        codes = client.device_sign_in(name)
        # Standard output may be JSON that a program reads.
        screen = console(is_error=True)
        screen.print(Text(f"Open {codes['verification_uri']} and enter {codes['user_code']}"))
        screen.print(Text(f"or open {codes['verification_uri_complete']}"))
        with screen.status("Waiting for your confirmation …"):
            while True:
                time.sleep(int(codes["interval"]))
                try:
                    return str(client.device_token(codes["device_code"])["token"])
                except Problem as problem:
                    # The portal also says when the code has expired.
                    if problem.code not in PENDING:
                        raise
