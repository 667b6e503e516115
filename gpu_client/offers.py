"""The commands of the waiting list and its offers."""

import os
from typing import Annotated

import typer

from gpu_client.api import Client
from gpu_client.config import config_load
from gpu_client.output import error_print, errors_shown, json_print, line_print, table_print
from gpu_client.problems import REFUSED
from gpu_client.words import moment, money

offers_app = typer.Typer(help="Places that are offered to bookings on the waiting list.")

Json = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
Reference = Annotated[str, typer.Argument(help="The booking, as BK-2041", show_default=False)]


def waitlist(is_json: Json = False) -> None:
    """List the bookings that wait for a full window."""
    with errors_shown(is_json=is_json), Client(config_load(os.environ)) as client:
        rows = client.waiting()
    if is_json:
        json_print(rows)
        return
    columns = {
        "Booking": lambda row: row["booking"],
        "How": lambda row: "booked" if row["mode"] == "auto" else "offered",
        "From": lambda row: moment(row["windows"][0]["since"]) if row["windows"] else "–",
        "Until": lambda row: moment(row["until"]),
        "At most": lambda row: money(row["cost"]),
    }
    table_print(columns, rows, "Nothing waits for a window.")


@offers_app.callback(invoke_without_command=True)
def offers(context: typer.Context, is_json: Json = False) -> None:
    """List the open offers."""
    if context.invoked_subcommand is not None:
        return
    with errors_shown(is_json=is_json), Client(config_load(os.environ)) as client:
        rows = [row for row in client.offers() if row["state"] == "open"]
    if is_json:
        json_print(rows)
        return
    columns = {
        "Booking": lambda row: row["booking"],
        "GPU": lambda row: row["gpu_class"],
        "Starts": lambda row: moment(row["starts"]),
        "Answer until": lambda row: moment(row["until"]),
        "Costs": lambda row: money(row["cost"]),
    }
    table_print(columns, rows, "Nothing is offered to you.")


@offers_app.command()
def accept(reference: Reference, is_json: Json = False) -> None:
    """Accept the open offer of a booking."""
    _answer(reference, is_accepted=True, is_json=is_json)


@offers_app.command()
def decline(reference: Reference, is_json: Json = False) -> None:
    """Decline the open offer of a booking."""
    _answer(reference, is_accepted=False, is_json=is_json)


def _answer(reference: str, *, is_accepted: bool, is_json: bool) -> None:
    with errors_shown(is_json=is_json), Client(config_load(os.environ)) as client:
        found = [
            row
            for row in client.offers()
            if row["state"] == "open" and reference in (row["booking"], row["id"])
        ]
        if not found:
            error_print(f"No open offer is for {reference}. It may have ended: see gpu waitlist.")
            raise SystemExit(REFUSED)
        act = client.offer_accept if is_accepted else client.offer_decline
        answer = act(str(found[0]["id"]))
    if is_json:
        json_print(answer)
        return
    word = "Accepted" if is_accepted else "Declined"
    line_print(f"{word}: {answer['booking']}, {moment(answer['starts'])}.")
