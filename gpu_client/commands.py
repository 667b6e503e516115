"""The commands of `gpu`. Each prints a table for people, or the API's JSON with `--json`."""

import os
import socket
import sys
import time
from typing import Annotated, Any

import typer
from rich.text import Text

from gpu_client.api import Client, Document
from gpu_client.availability import budget, free, insights, offers_app, quota, waitlist
from gpu_client.clusters import import_app
from gpu_client.config import config_of, config_path, config_save
from gpu_client.node import NotOnThisNode, booking_environment, booking_run, motd, notebook
from gpu_client.output import (
    console,
    error_print,
    errors_shown,
    facts_print,
    json_print,
    line_print,
    table_print,
)
from gpu_client.problems import REFUSED, USAGE, WAITING, Problem
from gpu_client.progress import progress_write
from gpu_client.scripts import BookCommand, script, script_fact, script_of
from gpu_client.session import Json, Zone, clock_of, portal
from gpu_client.watching import NOT_STARTED, OVER, Reference, decided_status, hook_app, watch
from gpu_client.words import Clock, iso_length, money, place, risk
from gpu_client.workloads import WorkloadName, advice_print
from gpu_client.workloads import workload as show_workload
from gpu_client.workloads import workloads as list_workloads

app = typer.Typer(no_args_is_help=True, add_completion=True, help=__doc__, rich_markup_mode=None)
app.add_typer(hook_app, name="hook")
app.command()(watch)
app.command()(free)
app.command()(waitlist)
app.command()(quota)
app.command()(budget)
app.command()(insights)
app.command("workloads")(list_workloads)
app.command("workload")(show_workload)
app.command()(motd)
app.command()(notebook)
app.command()(script)
app.add_typer(offers_app, name="offers")
app.add_typer(import_app, name="import")

ProjectName = Annotated[str, typer.Option("--project", "-p", envvar="GPU_PROJECT")]
TierName = Annotated[str, typer.Option("--tier", "-t")]
LabelOptions = Annotated[list[str] | None, typer.Option("--label", "-l", help="key=value; can be repeated.")]
DataNames = Annotated[
    list[str] | None,
    typer.Option("--with", help="A data set that the GPUs should be near; can be repeated."),
]
Words = Annotated[list[str], typer.Argument(help="For example: 2 h100 6h today", show_default=False)]
# Of a check: passed, not passed, not looked at.
_MARKS = {True: "✓", False: "✗", None: "–"}
PENDING = frozenset({"authorization_pending", "slow_down"})


@app.command()
def find(
    words: Words,
    project: ProjectName = "",
    tier: TierName = "",
    workload: WorkloadName = "",
    data: DataNames = None,
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Show when and at what price a request could start. Nothing is booked."""
    with portal(is_json=is_json) as client:
        request = _request(client, _with_data(words, data), project, tier, zone)
        found = client.quote({**request, **({"workload": workload} if workload else {})})
        if is_json:
            json_print(found)
        else:
            _options_print(found["options"], clock_of(client, zone))
            advice_print(found["advice"])
    if not found["options"]:
        raise SystemExit(REFUSED)


@app.command(cls=BookCommand)
def book(
    ctx: typer.Context,
    words: Words,
    project: ProjectName = "",
    tier: TierName = "",
    name: Annotated[str, typer.Option(help="A name for the booking.")] = "",
    workload: WorkloadName = "",
    data: DataNames = None,
    label: LabelOptions = None,
    ref: Annotated[str, typer.Option(help="A ticket: its key or its address.")] = "",
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    wait: Annotated[int, typer.Option(min=1, max=50, help="Seconds to wait.")] = 10,
    array: Annotated[int, typer.Option(help="Book it this many times, as an array.")] = 0,
    parallel: Annotated[int, typer.Option(help="For an array: most open bookings at once.")] = 0,
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Book GPUs: shows the options, and Enter takes the first.

    What follows -- is a script that runs on nodes of Slurm: gpu book 1 h100 2h -- ./train.sh.

    The exit status is 0 when the booking has its GPUs, 3 when it was refused and 4 while it waits.
    """
    text = script_of(ctx)
    with portal(is_json=is_json) as client:
        request = _request(client, _with_data(words, data), project, tier, zone)
        if workload:
            request["workload"] = workload
        if not (yes or is_json):
            request = _chosen(client.quote(request), request, clock_of(client, zone))
        if label:
            request["labels"] = _labels(label)
        given = {"name": name, "external_ref": ref, "array": array, "parallel": parallel, "script": text}
        request.update((field, value) for field, value in given.items() if value)
        booking = client.book(request, wait)
        _booking_print(client, booking, is_json, zone)
    raise SystemExit(decided_status(booking))


@app.command("ls")
def list_bookings(
    project: ProjectName = "",
    state: Annotated[str, typer.Option(help="Only this state, such as active.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Include bookings that have ended.")] = False,
    label: LabelOptions = None,
    ref: Annotated[str, typer.Option(help="Only bookings of this ticket.")] = "",
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """List bookings of your projects."""
    labels = ",".join(label or ())
    query = {"project": project, "state": state, "label": labels, "external_ref": ref}
    with portal(is_json=is_json) as client:
        rows = client.bookings(**{key: value for key, value in query.items() if value})
        clock = Clock() if is_json else clock_of(client, zone)
    if not (everything or state):
        rows = [row for row in rows if row["state"] not in OVER]
    if is_json:
        json_print({"items": rows})
        return
    columns = {
        "Booking": lambda row: row["number"],
        "State": lambda row: row["state"],
        "Project": lambda row: row["project"],
        "Owner": lambda row: row["owner"],
        "Request": lambda row: row["request"],
        "Starts": clock.starts,
    }
    table_print(columns, rows, "No bookings. Book with: gpu book 1 h100 1h")


@app.command()
def show(reference: Reference, is_json: Json = False, zone: Zone = "") -> None:
    """Show one booking."""
    with portal(is_json=is_json) as client:
        _booking_print(client, client.booking(reference), is_json, zone)


@app.command()
def why(reference: Reference, is_json: Json = False, zone: Zone = "") -> None:
    """Say why a booking waits, and what would start it earlier."""
    with portal(is_json=is_json) as client:
        found = client.why(reference)
        clock = Clock() if is_json else clock_of(client, zone)
    if is_json:
        json_print(found)
        return
    start = clock.moment(found["expected_start"])
    if found.get("estimated_start"):
        start = f"not before {clock.moment(found['estimated_start'])} (an estimate)"
    line_print(f"{found['number']} is {found['state']}. Start: {start}")
    for check in found["checks"]:
        line_print(f"  {_MARKS[check['passed']]} {check['name']}")
        for reason in check["reasons"]:
            line_print(f"      {reason['sentence']}")
    _queue_print(found, clock)


def _queue_print(found: Document, clock: Clock) -> None:
    """Prints who is ahead, who has the GPUs, and what would let the booking start earlier."""
    for ahead in found["ahead"]:
        line_print(f"  Ahead: {' '.join([ahead['sentence'], *ahead['bookings']])}")
    for holder in found["holders"]:
        who = holder["booking"] or "A booking of another organisation"
        line_print(f"  {who} has {holder['gpus']} of its GPUs until {clock.moment(holder['until'])}.")
    for change in found["changes"]:
        when = f"{clock.moment(change['at'])}: " if change["at"] else ""
        line_print(f"  {when}{change['sentence']}")
    for each in found["alternatives"]:
        if each.get("request"):
            line_print(f"  Would work: {each['request']}")


@app.command()
def extend(
    reference: Reference,
    length: Annotated[str, typer.Argument(help="By how much: 2h", show_default=False)],
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Ask for a later end."""
    try:
        by = iso_length(length)
    except ValueError as error:
        error_print(str(error))
        raise SystemExit(USAGE) from None
    with portal(is_json=is_json) as client:
        _booking_print(client, client.extend(reference, by), is_json, zone)


@app.command()
def release(reference: Reference, is_json: Json = False, zone: Zone = "") -> None:
    """End a booking now, or cancel it if it has not started."""
    with portal(is_json=is_json) as client:
        before = client.booking(reference)
        end = client.cancel if before["state"] in NOT_STARTED else client.release
        _booking_print(client, end(reference), is_json, zone)


@app.command("still-needed")
def still_needed(reference: Reference, is_json: Json = False, zone: Zone = "") -> None:
    """Keep the idle GPUs of a booking after a warning; at most twice until they are used."""
    with portal(is_json=is_json) as client:
        _booking_print(client, client.still_needed(reference), is_json, zone)


@app.command()
def result(
    reference: Reference,
    outcome: Annotated[str, typer.Argument(help="success or failure", show_default=False)],
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Report the result of a booking's program, also for an element: BK-2041[17]."""
    with portal(is_json=is_json) as client:
        _booking_print(client, client.result(reference, outcome), is_json, zone)


@app.command()
def progress(
    done: Annotated[str, typer.Argument(help="1200, or 1200/10000 of all.", show_default=False)],
    reference: Annotated[
        str,
        typer.Option("--booking", "-b", help="Without it the node's agent sends it, which needs no token."),
    ] = "",
    unit: Annotated[str | None, typer.Option(help="What a step is, such as epoch.")] = None,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="name=number; repeatable.")
    ] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option(help="The metric of which a plateau is shown: accuracy=higher; without it loss."),
    ] = None,
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Say how far the program of a running booking is: gpu progress 1200/10000 -m loss=0.31"""
    step, _, of = done.partition("/")
    with errors_shown(is_json=is_json):
        named = {name: _number(value) for name, value in _labels(metrics or []).items()} or None
        steps, whole = _number(step), _number(of) if of else None
        watched = _labels(watch or []) or None
        if not reference and progress_write(steps, whole, unit, named, watched):
            return
        booking = reference or os.environ.get("GPU_BOOKING", "")
        if not booking:
            raise Problem({"status": 422, "detail": "Say of which booking: --booking BK-12."})
    with portal(is_json=is_json) as client:
        found = client.progress(booking, steps, whole, unit, named, watched)
        if is_json:
            json_print(found)
            return
        clock = clock_of(client, zone)
        ends = found["expected_end"]
        line_print(f"Ends {clock.moment(ends)} at this rate." if ends else "Noted; no end is known yet.")
        metric = found.get("metric")
        if metric and metric["plateau"]:
            line_print(
                f"{metric['name']} has not become better since {found['unit']} {metric['since']:,.6g}."
            )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Problem({"status": 422, "detail": f"{text!r} is not a number."}) from None


@app.command()
def env(
    reference: Reference,
    part: Annotated[int | None, typer.Option(help="Which of several devices, from 0.")] = None,
) -> None:
    """Print the variables of a running booking, on its node: eval "$(gpu env BK-2041)"."""
    try:
        sys.stdout.write(f"{booking_environment(reference, part, os.environ)}\n")
    except NotOnThisNode as error:
        error_print(str(error))
        raise SystemExit(WAITING) from None


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    reference: Reference,
    command: Annotated[list[str], typer.Argument(help="After --", show_default=False)],
    part: Annotated[int | None, typer.Option(help="Which of several devices, from 0.")] = None,
) -> None:
    """Run a program of a booking, on its node: gpu run BK-2041 -- python train.py."""
    options = [] if part is None else ["--part", str(part)]
    raise SystemExit(booking_run(reference, command, options))


def _with_data(words: list[str], data: list[str] | None) -> list[str]:
    """Returns the words of a request that names data sets."""
    return [*words, f"with data {','.join(data)}"] if data else words


def _request(client: Client, words: list[str], project: str, tier: str, zone: str) -> dict[str, Any]:
    """Returns the body of a request; without a project, the only one in which you can book."""
    if not project:
        own = [each["project"] for each in client.me()["roles"] if each["role"] != "viewer"]
        if len(own) != 1:
            known = f" Yours: {', '.join(own)}." if own else ""
            error_print(f"Name the project with --project or in GPU_PROJECT.{known}")
            raise SystemExit(USAGE)
        project = own[0]
    request = {"project": project, "request": " ".join(words), "tier": tier, "zone": zone}
    return {name: value for name, value in request.items() if value}


def _labels(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in pairs:
        key, equals, value = each.partition("=")
        if not equals:
            error_print(f"Write a label as key=value, not {each}.")
            raise SystemExit(USAGE)
        found[key.strip()] = value.strip()
    return found


def _chosen(found: Document, request: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """Returns the request of the option that a person takes; Enter takes the first."""
    options = found["options"]
    if not options:
        error_print(found["blocking"] or "Nothing fits this request.")
        raise SystemExit(REFUSED)
    _options_print(options, clock)
    number = typer.prompt("Book which", default=1, type=int)
    if not 1 <= number <= len(options):
        error_print("This quote has no such option.")
        raise SystemExit(USAGE)
    taken = options[number - 1]
    return {**request, "tier": taken["tier"], "request": taken["request"], "quote": found["quote"]}


def _options_print(options: list[Document], clock: Clock) -> None:
    numbered = [{**each, "at": at} for at, each in enumerate(options, start=1)]
    columns = {
        "#": lambda row: str(row["at"]),
        "Starts": lambda row: clock.moment(row["starts"]),
        "What": lambda row: f"{row['count']} {row['profile'] or row['gpu_class']}",
        "Tier": lambda row: row["tier"],
        "Price": lambda row: money(row["price"], row["currency"]),
        "Pause": lambda row: risk(row["pause_risk"]),
        "Request": lambda row: row["request"],
    }
    table_print(columns, numbered, "Nothing fits this request.")


def _booking_print(client: Client, booking: Document, is_json: bool, zone: str) -> None:
    if is_json:
        json_print(booking)
        return
    clock = clock_of(client, zone)
    price = booking["price"]
    waiting = booking["waiting"] or {"reasons": []}
    later = booking["extension_until"]
    facts_print(
        f"{booking['number']} {booking['name']}".strip(),
        booking["state"],
        {
            "Request": booking["request"],
            "Project": f"{booking['project']}, {booking['tier']}",
            "Starts": clock.starts(booking),
            "Ends": clock.ends(booking),
            "Asked": f"an end at {clock.moment(later)}, not decided yet" if later else "",
            "Cores" if booking["ask"].get("host") else "GPUs": place(booking),
            "Script": script_fact(booking),
            "Held": money(price["held"], price["currency"]),
            "Why": " ".join(reason["sentence"] for reason in waiting["reasons"]),
        },
    )


@app.command()
def login(
    url: Annotated[str, typer.Option(prompt="Address of the portal", envvar="GPU_URL")],
    token: Annotated[
        str,
        typer.Option(envvar="GPU_TOKEN", help="Save this token instead of confirming in a browser."),
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the new token.")] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print the API's JSON.")] = False,
) -> None:
    """Sign in by confirming a code in a browser. Saves the address and a token for you only."""
    with errors_shown(is_json=is_json):
        if not token:
            token = _token_of_browser(url.strip(), name or f"gpu on {socket.gethostname()}"[:80])
        config = config_of(url.strip(), token.strip())
        with Client(config) as client:
            me = client.me()
    path = config_save(config, os.environ)
    if is_json:
        json_print(me)
    else:
        line_print(f"Signed in to {me['tenant']['name']} as {me['name']}. Saved in {path}.")


@app.command()
def logout() -> None:
    """Delete the saved token. It stays valid until you revoke it on the settings page."""
    config_path(os.environ).unlink(missing_ok=True)
    line_print("Signed out.")


def _token_of_browser(url: str, name: str) -> str:
    """Returns the token that a person grants in a browser. Raises Problem if it is declined."""
    with Client(config_of(url, "")) as client:
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
