"""The command `gpu` against the real API: what it prints, its exit status and its file."""

import json
import re
import stat
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import httpx
import pytest
from django.test import Client as Browser
from typer.testing import CliRunner, Result

from allocation.features.scripts.models import BookingScript
from allocation.models import Booking, Gpu, Node
from allocation.rules.states import State
from gpu_client import availability, commands, node, session, watching
from gpu_client.api import Client
from gpu_client.node import motd_lines
from gpu_client.output import errors_shown
from gpu_client.problems import Problem
from gpu_client.progress import progress_write
from gpu_client.words import Clock, iso_length
from gpu_client.workloads import advice_print
from tests.api.builders import Site, a_site
from tests.builders_allocation import a_booking, an_allocation
from tests.features.workloads.builders import Ran, ran
from tests.features.workloads.series import working
from tests.roles import as_system
from tests.wire.test_kubectl import a_pod, listed
from tests.wire.test_sacct import HEAD, line

HOOKED = "import os, sys; open(sys.argv[1], 'a').write(os.environ['GPU_BOOKING'])"


class Terminal:
    """Runs commands as one person; the API answers in the test's own transaction."""

    def __init__(self, folder: Path, token: str) -> None:
        self.file = folder / "gpu.json"
        self.environment = {
            "GPU_CONFIG": str(self.file),
            "GPU_URL": "http://localhost",
            "GPU_TOKEN": token,
            "GPU_AGENT_STATE": str(folder),
            "GPU_PROJECT": "folding",
            "COLUMNS": "240",
        }

    def run(self, *words: str, status: int = 0, typed: str = "") -> Result:
        result = CliRunner().invoke(commands.app, words, env=self.environment, input=typed)
        assert result.exit_code == status, result.output
        assert "\x1b" not in result.output
        widths = [0] if "--json" in words else [0, *map(len, result.stdout.splitlines())]
        assert max(widths) <= 100
        return result

    def json(self, *words: str, status: int = 0) -> Any:  # noqa: ANN401 (any JSON)
        return json.loads(self.run(*words, "--json", status=status).stdout)


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def portal_answer(request: httpx.Request) -> httpx.Response:
    """The portal's answer to what the client sends, by the test client of Django."""
    answer = Browser().generic(
        request.method,
        request.url.raw_path.decode(),
        request.read(),
        content_type=request.headers.get("Content-Type", ""),
        headers=dict(request.headers),
    )
    return httpx.Response(answer.status_code, headers=dict(answer.items()), content=answer.content)


@pytest.fixture
def mara(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    portal = httpx.MockTransport(portal_answer)
    for module in (commands, node, session):
        monkeypatch.setattr(module, "Client", lambda config: Client(config, portal))
    return Terminal(tmp_path, site.researcher.token or "")


def test_a_token_is_saved_for_its_owner_only(mara: Terminal) -> None:
    token = mara.environment.pop("GPU_TOKEN")
    url = mara.environment.pop("GPU_URL")
    assert "gpu login" in mara.run("ls", status=5).stderr
    said = mara.run("login", "--token", token, typed=f"{url}\n").stdout
    assert "Signed in to Helix as mara." in said
    assert token not in said
    assert stat.S_IMODE(mara.file.stat().st_mode) == 0o600
    assert mara.json("ls") == {"items": []}
    mara.run("logout")
    assert not mara.file.exists()
    refused = mara.run("login", "--url", url, "--token", f"{token}x", status=5)
    assert "Send a valid token" in refused.stderr
    assert not mara.file.exists()


def test_what_follows_two_dashes_runs_with_the_booking(mara: Terminal, tmp_path: Path) -> None:
    refused = mara.run("book", "1", "h100", "2h", "-y", "--", "python", "a b.py", status=3)
    assert "Only nodes of Slurm run the script" in refused.stderr
    assert "Say after --" in mara.run("book", "1", "h100", "2h", "-y", "--", status=2).stderr
    with as_system():
        Node.objects.update(engine="slurm", agent_version="0.8.0")
    words = ("book", "1", "h100", "2h", "-y", "--wait", "1", "--")
    mara.run(*words, "python", "a b.py", "--lr", "3", status=4)
    reference = mara.json("ls")["items"][0]["number"]
    assert mara.run("script", reference, "--text").stdout == "python 'a b.py' --lr 3\n"
    assert "Script" in mara.run("show", reference).stdout

    file = tmp_path / "train.sh"
    file.write_text("#!/bin/sh\nexit 7\n")
    booking = json.loads(mara.run(*words[:-1], "--json", "--", str(file), status=4).stdout)
    with as_system():
        BookingScript.objects.filter(booking=UUID(booking["id"].removeprefix("bk_"))).update(
            exit_code=7, ended_at=datetime.now(UTC), log_file="/home/mara/x.log", log="epoch 1\n"
        )
    said = mara.run("script", booking["number"]).stdout
    assert re.match(r"Script: ended with exit code 7 at .*\nThe end of /home/mara/x.log:\nepoch 1\n$", said)
    file.write_bytes(b"\xff\xfe")
    assert "can't be read as text" in mara.run(*words, str(file), status=2).stderr


def test_advice_is_printed_with_its_workload_if_it_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    advice_print(
        [
            {"sentence": "A slice is enough.", "request": "1 1g.10gb 1h", "labels": {"workload": "fold"}},
            {"sentence": "A rented machine.", "request": "1 h100 1h may burst", "labels": {}},
            {"sentence": "Wait.", "request": "", "labels": {}},
        ]
    )
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert printed[1::2] == ["1 1g.10gb 1h --workload fold", "1 h100 1h may burst"]


def test_the_message_of_the_day_says_what_ends_and_what_is_idle(mara: Terminal) -> None:
    now = datetime(2026, 11, 25, 12, tzinfo=UTC)

    def booking(number: str, node: str, minutes: int, idle: str | None = None) -> dict[str, Any]:
        until = (now + timedelta(minutes=minutes)).isoformat()
        return {
            "number": number,
            "name": "",
            "state": "active",
            "idle_veto_until": idle,
            "allocations": [{"node": node, "gpu_index": 3}],
            "ended_at": None,
            "window": {"planned_ends": until, "ends": None},
        }

    rows = [
        booking("BK-1", "n1", 30),
        booking("BK-2", "n2", 30),
        booking("BK-3", "n1", 300, idle=now.isoformat()),
    ]
    text = "\n".join(motd_lines(rows, "n1", now, Clock()))
    assert "gpu extend BK-1 1h" in text
    assert "gpu still-needed BK-3" in text
    assert "gpu extend BK-3" not in text
    assert "BK-2" not in text
    # A login never fails by it: neither without bookings nor without a token.
    assert mara.run("motd").stdout == ""
    mara.environment.pop("GPU_TOKEN")
    assert mara.run("motd").output == ""


def test_a_booking_from_the_question_to_its_end(mara: Terminal) -> None:
    options = mara.json("find", "1", "h100", "for", "10m")["options"]
    shown = mara.run("find", "1 h100 for 10m").stdout
    assert options[0]["request"] in shown
    # A person takes the first option with Enter. Nobody decides here, so the booking waits.
    booked = mara.run("book", "1 h100 for 10m", "--name", "first", typed="\n", status=4)
    assert "BK-1 first" in booked.stdout
    second = mara.json("book", "1 h100 for 10m", status=4)
    assert (second["number"], second["state"]) == ("BK-2", "requested")
    assert {row["number"] for row in mara.json("ls")["items"]} == {"BK-1", "BK-2"}
    assert mara.json("show", "BK-2") == second
    assert mara.json("why", "BK-2")["number"] == "BK-2"
    reasons = mara.run("why", "bk-2").stdout
    assert "requested" in reasons
    assert "GPUs free together" in reasons
    labelled = mara.json(
        "book", "1 h100 for 10m", "-l", "team=vision", "-l", "run=7", "--ref", "GPU-7", status=4
    )
    assert (labelled["labels"], labelled["external_ref"]) == (
        {"team": "vision", "run": "7"},
        "GPU-7",
    )
    found = mara.json("ls", "--label", "team=vision", "--ref", "GPU-7")["items"]
    assert [row["number"] for row in found] == ["BK-3"]
    assert "key=value" in mara.run("book", "-y", "1 h100 1h", "-l", "team", status=2).stderr
    assert mara.json("release", "BK-3")["state"] == "cancelled"
    assert mara.json("release", "BK-2")["state"] == "cancelled"
    assert [row["number"] for row in mara.json("ls")["items"]] == ["BK-1"]
    assert len(mara.json("ls", "--all")["items"]) == 3
    assert "Free all the time: 8" in mara.run("free", "--gpu", "h100", "--for", "6h").stdout


def test_gpus_are_free_from_the_portals_now_on(mara: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second may begin between a question and its answer, and the portal counts the past as 0."""

    class Behind(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) - timedelta(minutes=2)

    monkeypatch.setattr(availability, "datetime", Behind)
    assert "Free all the time: 8" in mara.run("free", "--gpu", "h100", "--for", "6h").stdout
    assert "folding" in mara.run("quota").stdout
    assert "EUR" in mara.run("budget").stdout


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("book", "-y", "99 h100 1h"), 3, "99"),
        (("book", "-y", "blub"), 2, "not understood"),
        (("book", "-y", "-p", "hidden", "1 h100 1h"), 2, "no such project"),
        (("show", "BK-77"), 2, "There is no such booking"),
        (("show", "../me"), 2, "is not a booking like BK-2041"),
        (("show", "nope"), 2, "is not a booking like BK-2041"),
        (("watch", "BK-77", "--until", "activ"), 2, "There is no state 'activ'"),
        (("extend", "BK-77", "soon"), 2, "Write a duration like 2h"),
        (("free", "--gpu", "b9000"), 2, ""),
        (("env", "BK-77"), 4, "has no devices on this node now"),
        (("run", "BK-77", "--", "true"), 4, "has no devices on this node now"),
        (("no-such-command",), 2, ""),
    ],
)
def test_errors_are_the_api_s_sentence_and_a_status(
    mara: Terminal, words: tuple[str, ...], status: int, sentence: str
) -> None:
    assert sentence in mara.run(*words, status=status).stderr


def test_rights_and_a_portal_that_is_not_there(mara: Terminal, site: Site) -> None:
    viewer = Terminal(mara.file.parent, site.viewer.token or "")
    problem = viewer.json("book", "-y", "1 h100 1h", status=5)
    assert problem["code"] == "not_allowed"
    del viewer.environment["GPU_PROJECT"]
    assert "Name the project" in viewer.run("book", "1 h100 1h", status=2).stderr


@pytest.mark.parametrize(
    ("name", "value", "status", "sentence"),
    [
        ("GPU_TOKEN", "gpup_pat_gone", 5, "gpu login"),
        ("GPU_TOKEN", "gpup_pat_\u00e9", 5, "characters that no token has"),
        ("GPU_TOKEN", "gpup_pat_a\nb", 5, "characters that no token has"),
        ("GPU_URL", "localhost:8000", 2, "as https://gpu.example.org"),
    ],
)
def test_what_is_wrong_with_a_token_or_an_address_is_said_without_it(
    mara: Terminal, name: str, value: str, status: int, sentence: str
) -> None:
    mara.environment[name] = value
    refused = mara.run("ls", status=status)
    assert sentence in refused.stderr
    assert "gpup_pat" not in refused.output


def test_other_servers_and_broken_ones_are_no_portal(mara: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(handle: Any) -> None:  # noqa: ANN401 (a handler of httpx)
        transport = httpx.MockTransport(handle)
        monkeypatch.setattr(session, "Client", lambda config: Client(config, transport))

    def refuses(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    answers(refuses)
    assert "can't be reached" in mara.run("ls", status=6).stderr
    answers(lambda _: httpx.Response(200, text="<html>"))
    assert "not a GPU portal" in mara.run("ls", status=6).stderr
    answers(lambda _: httpx.Response(502, text="<html>"))
    assert "not a GPU portal" in mara.run("ls", status=6).stderr
    answers(lambda _: httpx.Response(503, json={"status": 503, "detail": "The portal is busy."}))
    assert mara.run("ls", status=6).stderr == "The portal is busy.\n"


def test_watch_and_hooks_follow_the_booking_over_broken_streams(
    mara: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def event(number: int, booking: str, kind: str, state: str) -> str:
        data = {"booking": {"id": booking, "state": state}, "message": f"It {kind}."}
        body = {"id": f"evt_{number}", "type": f"booking.{kind}", "data": data}
        return f"id: x\ndata: {json.dumps({**body, 'timestamp': '2026-11-23T09:00:00+00:00'})}\n\n"

    streams = [
        'data: {"id": "evt_0", "type": "budget.threshold_reached", "data": {"budget": {}}}\n\n'
        ":\n\n" + event(1, "bk_other", "started", "active") + event(2, "bk_1", "pause_notified", "pausing"),
        event(3, "bk_1", "paused", "paused")
        + event(4, "bk_1", "ended", "ended")
        + event(5, "bk_1", "corrected", "ended"),
    ]
    asked: list[str | None] = []
    broken: list[str | None] = []
    states: list[str] = []
    monkeypatch.setattr(watching, "PAUSES", (0,))

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/me"):
            return httpx.Response(200, json={"time_zone": "Asia/Kathmandu"})
        if request.url.path.endswith("/events"):
            asked.append(request.headers.get("Last-Event-ID"))
            if asked == [None, "evt_2"] and not broken:
                # The portal restarts.
                broken.append(asked.pop())
                raise httpx.ConnectError("refused", request=request)
            return httpx.Response(200, text=streams[len(asked) - 1])
        states.append("ended" if len(asked) == 2 else "active")
        return httpx.Response(200, json={"id": "bk_1", "number": "BK-1", "state": states[-1]})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(session, "Client", lambda config: Client(config, transport))
    watched = mara.run("watch", "BK-1", "--json")
    lines = watched.stdout.splitlines()
    assert watched.stderr == "The portal can't be reached: refused. Trying again.\n"
    assert broken == ["evt_2"]
    assert [json.loads(line)["id"] for line in lines] == ["evt_2", "evt_3", "evt_4"]
    assert asked == [None, "evt_2"]
    asked.clear()
    assert "Mon 23 Nov 14:45 +0545  It paused." in mara.run("watch", "BK-1").stdout
    asked.clear()
    seen = mara.file.with_name("seen")
    mara.run("hook", "on-notice", "BK-1", "python3", "-c", HOOKED, str(seen))
    assert seen.read_text() == "BK-1"


def test_times_are_in_the_zone_of_the_account_or_of_an_option(mara: Terminal) -> None:
    fixed = ("book", "-y", "1 h100 tomorrow 14:00 to 18:00")
    # The account's zone is Europe/Berlin.
    assert re.search(r" 14:00 \+0[12]00", mara.run(*fixed, status=4).stdout)
    assert re.search(r" 1[78]:45 \+0545", mara.run("show", "BK-1", "--zone", "Asia/Kathmandu").stdout)
    # The words of a request are read in the zone in which its times are printed.
    mara.environment["GPU_ZONE"] = "Asia/Tokyo"
    assert " 14:00 +0900" in mara.run(*fixed, status=4).stdout
    refused = mara.run("show", "BK-1", "--zone", "Mars/Olympus", status=2)
    assert "no time zone 'Mars/Olympus'" in refused.stderr


def test_offers_are_listed_and_answered_by_their_booking(
    mara: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = "2026-11-23T09:00:00Z"
    offer = {
        "id": "7f",
        "booking": "BK-1",
        "state": "open",
        "gpu_class": "h100",
        "starts": at,
        "until": at,
        "cost": "4.80",
    }
    entry = {"booking": "BK-2", "mode": "auto", "windows": [], "until": at, "cost": "1"}
    sent: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            sent.append(request.url.path)
            return httpx.Response(200, json=offer)
        if request.url.path.endswith("/me"):
            return httpx.Response(200, json={"time_zone": "UTC"})
        rows = [entry] if request.url.path.endswith("waitlist") else [offer]
        return httpx.Response(200, json={"items": rows, "next": None})

    transport = httpx.MockTransport(handle)
    monkeypatch.setattr(session, "Client", lambda config: Client(config, transport))
    assert "BK-2" in mara.run("waitlist").stdout
    assert "BK-1" in mara.run("offers").stdout
    assert "no open offer for BK-9" in mara.run("offers", "accept", "BK-9", status=3).stderr
    assert "Accepted: BK-1" in mara.run("offers", "accept", "BK-1").stdout
    assert mara.json("offers", "decline", "BK-1") == offer
    assert [path.rsplit("/", 2)[1:] for path in sent] == [["7f", "accept"], ["7f", "decline"]]


@pytest.mark.parametrize(("text", "iso"), [("2h", "P0DT2H0M"), ("1d 6h", "P1DT6H0M"), ("90m", "P0DT0H90M")])
def test_durations_are_those_of_a_request(text: str, iso: str) -> None:
    assert iso_length(text) == iso
    for bad in ("", "h", "2", "2 hours", "-2h"):
        with pytest.raises(ValueError, match="duration"):
            iso_length(bad)


def test_progress_is_said_by_the_command_and_needs_numbers(mara: Terminal, site: Site) -> None:
    assert "'many' is not a number" in mara.run("progress", "many", "-b", "BK-1", status=2).stderr
    assert "no such booking" in mara.run("progress", "1/2", "-b", "BK-99", status=2).stderr
    with as_system():
        now = datetime.now(UTC)
        booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE)
        Booking.objects.filter(id=booking.id).update(ready_at=now, planned_ends=now + timedelta(hours=1))
    number = booking.label
    said = mara.run("progress", "3/10", "-b", number, "-m", "loss=0.5", "--unit", "epoch")
    assert "no end is known yet" in said.stdout
    assert mara.json("progress", "4", "-b", number)["of"] == 10


def test_on_a_node_progress_needs_no_token_and_no_portal(
    mara: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "progress"
    file.write_text("earlier and longer than what follows, much longer than it, in one line\n")
    assert not progress_write(3)
    assert "Say of which booking" in mara.run("progress", "3", status=2).stderr
    monkeypatch.setenv("GPU_BOOKING_PROGRESS", str(file))
    assert mara.run("progress", "3/10", "-m", "loss=0.5", "--unit", "epoch").stdout == ""
    assert json.loads(file.read_text()) == {"step": 3, "of": 10, "unit": "epoch", "metrics": {"loss": 0.5}}
    assert progress_write(4)
    assert file.read_text() == '{"step": 4}\n'
    with pytest.raises(ValueError, match="Out of range"):
        progress_write(float("nan"))
    file.unlink()
    with pytest.raises(FileNotFoundError):
        progress_write(5)


def test_workloads_have_a_table_and_find_prints_advice(mara: Terminal, site: Site) -> None:
    assert "No workload has finished a run." in mara.run("workloads").stdout
    small = working(12, 6, 4, 3)
    for number in range(2):
        each = Ran(f"embed-{number}", rows=(small,), memory_mb=5_000, ago=24 + number)
        ran(site.project, site.people["researcher"].id, each)
    assert re.search(rf"embed\s+{site.project.slug}\s+2\s", mara.run("workloads").stdout)
    shown = mara.run("workload", "embed").stdout
    assert "a 1g.10gb slice costs a seventh" in shown
    assert re.search(r"12 %\s+0 %\s+4.9 GiB", shown)
    assert mara.json("workload", "embed")["profile"][0]["runs"] == 2
    found = mara.run("find", "1 h100 2h", "-p", site.project.slug, "--workload", "embed").stdout
    assert "1g.10gb h100 2h --workload embed" in found
    assert "Advice" not in mara.run("find", "1 h100 2h", "-p", site.project.slug).stdout


def test_insights_are_a_table_of_what_gpus_did(mara: Terminal, site: Site) -> None:
    for when in ([], ["--month", "2026-10"]):
        assert "Nothing ran in this time." in mara.run("insights", *when, "-p", site.project.slug).stdout
    with as_system():
        booking = a_booking(site.project, site.people["researcher"].id, state=State.ENDED)
        gpu = Gpu.objects.order_by("number")[0]
    begins = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
    an_allocation(booking, gpu, starts=begins, ends=begins + timedelta(hours=2), state="ended")
    table = mara.run("insights", "--by", "project", "-p", site.project.slug).stdout
    assert re.search(rf"{site.project.slug}\s+2\.0\s+0 %\s+–\s+1\s", table)
    (row,) = mara.json("insights", "--by", "tier", "-p", site.project.slug)["items"]
    assert row["gpu_hours"] == "2.000"
    assert "Choose one of" in mara.run("insights", "--by", "tenant", status=2).stderr
    assert "written as 2026-11" in mara.run("insights", "--month", "November", status=2).stderr


def test_records_of_slurm_are_sent_by_operators_only(mara: Terminal, site: Site, tmp_path: Path) -> None:
    """A file of two jobs, one of them without GPUs; what it has no class or project for is said."""
    file = tmp_path / "jobs"
    rows = [HEAD, line(AllocTRES="gres/gpu:v100=2"), line(JobID="2", AllocTRES="cpu=1", ReqTRES="cpu=1")]
    file.write_text("\n".join(rows), encoding="utf-8")
    assert "operator" in mara.run("import", "sacct", str(file), status=5).stderr
    mara.environment["GPU_TOKEN"] = site.operator.token or ""
    said = mara.run("import", "sacct", str(file), "--cluster", "main", "--zone", "Europe/Berlin").stdout
    assert said.splitlines() == [
        "1 job with GPUs sent to main.",
        "Types without a class, in no forecast: v100",
        "Accounts without a project: physics",
    ]
    file.write_text("nonsense", encoding="utf-8")
    assert "no column JobID" in mara.run("import", "sacct", str(file), status=2).stderr


def test_an_operator_sends_what_kubernetes_runs(mara: Terminal, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "pods"
    file.write_text(listed(a_pod()), encoding="utf-8")
    mara.environment["GPU_TOKEN"] = site.operator.token or ""
    said = mara.run("import", "kubernetes", str(file), "--cluster", "k8s").stdout
    assert said.splitlines() == [
        "1 job with GPUs sent to k8s.",
        "Types without a class, in no forecast: NVIDIA-H100-80GB-HBM3",
        "Accounts without a project: vision",
    ]
    file.write_text("nonsense", encoding="utf-8")
    assert "kubectl" in mara.run("import", "kubernetes", str(file), status=2).stderr


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        ({"request": "2 h100 6h"}, "2 h100 6h"),
        ({"count": 6, "gpu_class": "h100"}, "count 6, gpu class h100"),
        ({"duration": 604_800}, "duration 168h"),
        ({"duration": 5_400, "profile": None}, "duration 90m"),
        ({"tier": "spot", "name": "Spot"}, "tier spot"),
    ],
)
def test_a_refusal_says_what_would_work_as_a_line_or_by_its_fields(
    capsys: pytest.CaptureFixture[str], offer: dict[str, object], words: str
) -> None:
    with pytest.raises(SystemExit), errors_shown(is_json=False):
        raise Problem({"detail": "Too many.", "status": 409, "alternatives": [offer]})
    assert capsys.readouterr().err.splitlines() == ["Too many.", f"  Would work: {words}"]
