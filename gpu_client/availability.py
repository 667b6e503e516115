"""Commands about what can be had: free GPUs, the waiting list, offers, quotas and budgets."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import typer

from gpu_client.output import error_print, json_print, line_print, table_print
from gpu_client.problems import REFUSED, USAGE
from gpu_client.session import Json, Zone, clock_of, portal
from gpu_client.words import Clock, iso_length, money

offers_app = typer.Typer(help="Places that are offered to bookings on the waiting list.")

Reference = Annotated[str, typer.Argument(help="The booking, as BK-2041", show_default=False)]
ProjectName = Annotated[str, typer.Option("--project", "-p", envvar="GPU_PROJECT")]
GPU_UNITS = 56_000
MOST_TIMES = 3


def free(
    gpu: Annotated[str, typer.Option("--gpu", help="A class, such as h100.")],
    length: Annotated[str, typer.Option("--for", help="For how long.")] = "24h",
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Show how many whole GPUs of a class are free, from now on."""
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        until = now + _length(length)
    except ValueError as error:
        error_print(str(error))
        raise SystemExit(USAGE) from None
    with portal(is_json=is_json) as client:
        # The portal counts the past as 0, and its clock may be ahead of this one.
        found = client.availability(gpu, "", until.isoformat())
        hours = [] if is_json else client.heatmap(gpu)
        clock = Clock() if is_json else clock_of(client, zone)
    if is_json:
        json_print(found)
        return
    columns = {
        "From": lambda row: clock.moment(row["starts"]),
        "To": lambda row: clock.moment(row["ends"]),
        "Free GPUs": lambda row: str(row["whole_gpus"]),
    }
    table_print(columns, found["free"], "No GPUs are known for that time.")
    line_print(f"Free all the time: {min((row['whole_gpus'] for row in found['free']), default=0)}")
    for line in _good_times(hours, clock):
        line_print(line)


def _good_times(hours: list[dict[str, Any]], clock: Clock) -> list[str]:
    """The cheapest hours of the coming week without an expected wait, one of each day."""
    found: dict[str, dict[str, Any]] = {}
    known = [row for row in hours if row["wait_hours"] == 0 and row["price"] is not None]
    for row in sorted(known, key=lambda row: (Decimal(row["price"]), row["pause_risk"] or 0, row["at"])):
        found.setdefault(row["at"][:10], row)
    best = list(found.values())[:MOST_TIMES]
    lines = [
        f"  {clock.moment(row['at'])}  {money(row['price'], row['currency'])} a GPU-hour" for row in best
    ]
    return ["No wait is expected, by the forecast:", *lines] if lines else []


def quota(is_json: Json = False) -> None:
    """Show quotas: guaranteed GPUs, and the most that can be used."""
    with portal(is_json=is_json) as client:
        rows = client.quotas()
    if is_json:
        json_print({"items": rows})
        return
    columns = {
        "Project": lambda row: row["project"] or "(all)",
        "GPU class": lambda row: row["gpu_class"],
        "Guaranteed": lambda row: _gpus(row["guaranteed_units"]),
        "Limit": lambda row: _gpus(row["limit_units"]),
    }
    table_print(columns, rows, "No quotas are set.")


def budget(project: ProjectName = "", is_json: Json = False) -> None:
    """Show budgets: spent, held for bookings, and left."""
    with portal(is_json=is_json) as client:
        rows = client.budgets(**({"project": project} if project else {}))
    if is_json:
        json_print({"items": rows})
        return
    columns = {
        "Budget": lambda row: row["name"] or row["project"] or row["level"],
        "From": lambda row: row["starts"],
        "To": lambda row: row["ends"],
        "Amount": lambda row: money(row["amount"], row["currency"]),
        "Spent": lambda row: money(row["spent"]),
        "Held": lambda row: money(row["held"]),
        "Left": lambda row: money(row["left"]),
    }
    table_print(columns, rows, "No budgets are set.")


def insights(
    by: Annotated[str, typer.Option(help="class, project, person or tier.")] = "class",
    weeks: Annotated[int, typer.Option(min=1, max=52, help="The last weeks until now.")] = 4,
    month: Annotated[str, typer.Option(help="A month such as 2026-11, in place of weeks.")] = "",
    project: ProjectName = "",
    is_json: Json = False,
) -> None:
    """Show what GPUs did: GPU-hours, how busy they were, waits, energy, spend and the cost of units."""
    starts, ends = _month(month) if month else _last(weeks)
    query = {"from": str(starts), "to": str(ends), "by": by, "step": "all"}
    with portal(is_json=is_json) as client:
        rows = client.kpis(**query, **({"project": project} if project else {}))
    if is_json:
        json_print({"items": rows})
        return
    columns = {
        by.capitalize(): lambda row: row["name"] or "–",
        "GPU-hours": lambda row: f"{Decimal(row['gpu_hours']):,.1f}",
        "Measured": lambda row: _percent(row["measured_gpu_hours"], row["gpu_hours"]),
        "Busy": lambda row: "–" if row["utilisation"] is None else f"{Decimal(row['utilisation']):.0f} %",
        "Began": lambda row: str(row["began"]),
        "Median wait": lambda row: _wait(row["wait_p50_seconds"]),
        "Pauses": lambda row: str(row["pauses"]),
        "kWh": lambda row: f"{Decimal(row['kwh']):,.1f}" if Decimal(row["energy_gpu_hours"]) else "–",
        "Spend": lambda row: "–" if row["spend"] is None else money(row["spend"]),
        "Cost of 1,000 units": lambda row: _units(row.get("units", [])),
    }
    table_print(columns, rows, "Nothing ran in this time.")


def waitlist(is_json: Json = False, zone: Zone = "") -> None:
    """List the bookings that wait for a full window."""
    with portal(is_json=is_json) as client:
        rows = client.waiting()
        clock = Clock() if is_json else clock_of(client, zone)
    if is_json:
        json_print(rows)
        return
    columns = {
        "Booking": lambda row: row["booking"],
        "How": lambda row: "booked" if row["mode"] == "auto" else "offered",
        "From": lambda row: clock.moment(row["windows"][0]["since"]) if row["windows"] else "–",
        "Until": lambda row: clock.moment(row["until"]),
        "At most": lambda row: money(row["cost"]),
    }
    table_print(columns, rows, "Your waiting list is empty.")


@offers_app.callback(invoke_without_command=True)
def offers(context: typer.Context, is_json: Json = False, zone: Zone = "") -> None:
    """List the open offers."""
    if context.invoked_subcommand is not None:
        return
    with portal(is_json=is_json) as client:
        rows = [row for row in client.offers() if row["state"] == "open"]
        clock = Clock() if is_json else clock_of(client, zone)
    if is_json:
        json_print(rows)
        return
    columns = {
        "Booking": lambda row: row["booking"],
        "GPU": lambda row: row["gpu_class"],
        "Starts": lambda row: clock.moment(row["starts"]),
        "Answer until": lambda row: clock.moment(row["until"]),
        "Costs": lambda row: money(row["cost"]),
    }
    table_print(columns, rows, "You have no open offers.")


@offers_app.command()
def accept(reference: Reference, is_json: Json = False, zone: Zone = "") -> None:
    """Accept the open offer of a booking."""
    _answer(reference, is_accepted=True, is_json=is_json, zone=zone)


@offers_app.command()
def decline(reference: Reference, is_json: Json = False, zone: Zone = "") -> None:
    """Decline the open offer of a booking."""
    _answer(reference, is_accepted=False, is_json=is_json, zone=zone)


def _answer(reference: str, *, is_accepted: bool, is_json: bool, zone: str) -> None:
    with portal(is_json=is_json) as client:
        found = [
            row
            for row in client.offers()
            if row["state"] == "open" and reference in (row["booking"], row["id"])
        ]
        if not found:
            error_print(f"There is no open offer for {reference}. It may have expired: see gpu waitlist.")
            raise SystemExit(REFUSED)
        act = client.offer_accept if is_accepted else client.offer_decline
        answer = act(str(found[0]["id"]))
        clock = Clock() if is_json else clock_of(client, zone)
    if is_json:
        json_print(answer)
        return
    word = "Accepted" if is_accepted else "Declined"
    line_print(f"{word}: {answer['booking']}, {clock.moment(answer['starts'])}.")


def _last(weeks: int) -> tuple[date, date]:
    ends = datetime.now(UTC).date() + timedelta(days=1)
    return ends - timedelta(weeks=weeks), ends


def _month(text: str) -> tuple[date, date]:
    """The first day of a month and the one after its last; ends with a message where it is none."""
    try:
        first = date.fromisoformat(f"{text}-01")
    except ValueError:
        error_print("A month is written as 2026-11.")
        raise typer.Exit(USAGE) from None
    return first, (first + timedelta(days=31)).replace(day=1)


def _units(rows: list[dict[str, Any]]) -> str:
    """The cost of 1,000 units by unit; – where no program has reported any."""
    known = [f"{money(str(1_000 * Decimal(row['cost'])))} {row['unit']}" for row in rows if row["cost"]]
    return ", ".join(known) or "–"


def _percent(part: str, whole: str) -> str:
    return f"{100 * min(Decimal(part) / Decimal(whole), Decimal(1)):.0f} %" if Decimal(whole) else "–"


def _wait(seconds: int | None) -> str:
    return "–" if seconds is None else str(timedelta(seconds=seconds))


def _length(text: str) -> timedelta:
    iso = iso_length(text).removeprefix("P").removesuffix("M")
    days, _, rest = iso.partition("DT")
    hours, _, minutes = rest.partition("H")
    return timedelta(days=int(days), hours=int(hours), minutes=int(minutes))


def _gpus(units: int | None) -> str:
    return "no limit" if units is None else f"{units / GPU_UNITS:.3g}"
