"""Scripts of bookings: which are taken, what nodes get and say, and how they end their bookings."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.http import HttpResponse
from django.test import Client

import wire
from allocation.features.scripts.endings import ended_turn
from allocation.features.scripts.models import BookingScript
from allocation.features.scripts.services import scripts_ended
from allocation.models import Allocation, Booking, BookingEvent, Gpu, Node
from allocation.rules.states import State
from allocation.services.inbox.apply import message_apply
from allocation.services.nodes.fleet import node_key
from allocation.services.publish.desired import desired_documents
from tenants.models import AuditEntry
from tests.api.builders import Site, said
from tests.builders_allocation import NOW, a_booking, an_allocation
from tests.roles import as_owner, as_role, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db

TEXT = "#!/bin/bash\npython train.py --secret s3cr3t\n"
FILE = "/home/mara/gpu-bookings/helix.BK-1.7.log"


@pytest.fixture(autouse=True)
def slurm(site: Site) -> None:
    """The site's node is Slurm's."""
    node_set(engine="slurm", agent_version="0.8.0")


def node_set(**facts: Any) -> None:  # noqa: ANN401 (fields of a node)
    with as_system():
        Node.objects.update(**facts)


def refused(response: HttpResponse) -> tuple[int, str, str]:
    body = json.loads(response.content)
    return response.status_code, body["code"], body.get("param", "")


def booked(site: Site, script: str = TEXT, request: str = "1 h100 2h", **more: Any) -> HttpResponse:  # noqa: ANN401
    body = {"project": "folding", "request": request, "script": script, **more}
    return site.researcher.post("bookings", body)


@pytest.fixture
def running(site: Site) -> Allocation:
    """A booking of the researcher with a script, which runs."""
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE)
    with as_system():
        row = an_allocation(booking, Gpu.objects.earliest("number"), state=Allocation.State.ACTIVE)
    add(booking)
    row.booking = booking
    return row


def add(booking: Booking) -> None:
    with as_owner():
        BookingScript.objects.create(booking=booking, tenant_id=booking.tenant_id, text=TEXT)


def the_script() -> BookingScript:
    with as_system():
        return BookingScript.objects.defer(None).select_related("booking").get()


def sent(row: Allocation, script: wire.ReportedScript | None, *, seconds: float = 60) -> str:
    """The node reports the script of an allocation."""
    with as_system():
        node = Node.objects.get()
        item = wire.ReportedAllocation(
            id=row.id.hex, state="ready", devices=("GPU-0",), error=None, since=1, script=script
        )
        report = wire.Report(
            epoch=1, observed_generation=node.generation, seq=node.report_seq + 1, allocations=(item,)
        )
        envelope = wire.seal(report, key=node_key(node), key_version=node.key_version)
        return message_apply(node_name=node.name, envelope=envelope, now=NOW + timedelta(seconds=seconds))


def over(code: int, log: str = "epoch 1\ndone\n") -> wire.ReportedScript:
    ended = "FAILED" if code else "COMPLETED"
    return wire.ReportedScript(exit_code=code, file=FILE, log=log, ended=ended)


def turned(seconds: float = 61) -> int:
    with as_system():
        return ended_turn(NOW + timedelta(seconds=seconds))


def test_it_comes_with_a_booking_and_stays_out_of_logs_and_lists(site: Site) -> None:
    answer = booked(site, TEXT.replace("\n", "\r\n"))
    assert answer.status_code == 201, answer.content
    label = said(answer)["number"]
    at = f"bookings/{label}/script"
    found = said(site.researcher.get(at))
    assert found == {
        "text": TEXT,
        "exit_code": None,
        "ended": "",
        "ended_at": None,
        "log_file": "",
        "log": "",
    }
    assert said(site.researcher.get(f"bookings/{label}"))["script"]["exit_code"] is None
    listed = site.researcher.get("bookings")
    assert said(listed)["items"][0]["script"]["exit_code"] is None
    assert b"s3cr3t" not in listed.content + answer.content

    # Members of the project see it, as they see its name; nobody else does.
    assert said(site.lead.get(at))["text"] == TEXT
    assert site.outsider.get(at).status_code == 404
    with as_system():
        kept = list(AuditEntry.objects.values_list("detail", flat=True))
        kept += BookingEvent.objects.values_list("detail", flat=True)
        assert "s3cr3t" not in json.dumps(kept, default=str)


def test_operators_do_not_read_it(site: Site, running: Allocation) -> None:
    with as_role("portal_ops"):
        assert BookingScript.objects.get().exit_code is None
        with pytest.raises(Exception, match="permission denied"):
            str(BookingScript.objects.defer(None).get())


@pytest.mark.parametrize(
    ("script", "request_", "code"),
    [
        pytest.param(" \n", "1 h100 2h", "script_empty", id="empty"),
        pytest.param("é" * 8_193, "1 h100 2h", "script_too_long", id="more than 16 KiB"),
        pytest.param("echo \x1b[1m", "1 h100 2h", "script_characters", id="a control character"),
        pytest.param("echo \u202e", "1 h100 2h", "script_characters", id="a change of direction"),
        pytest.param(TEXT, "2 h100 2h", "script_one_node", id="perhaps on two nodes"),
        pytest.param(TEXT, "array of 3 1 h100 2h", "script_no_array", id="an array"),
    ],
)
def test_what_can_not_run_is_refused_at_its_field(site: Site, script: str, request_: str, code: str) -> None:
    assert refused(booked(site, script, request_)) == (422, code, "script")
    with as_system():
        assert not Booking.objects.exists()
        assert not BookingScript.objects.exists()


@pytest.mark.parametrize("request_", ["2 h100 2h on one node", "2 h100 2h on gpu-a1-01"])
def test_several_gpus_on_one_node_may_have_one(site: Site, request_: str) -> None:
    assert booked(site, "x" * 16_384, request_).status_code == 201


@pytest.mark.parametrize(
    ("engine", "version", "status"),
    [
        ("slurm", "0.8.0", 201),
        ("slurm", "0.7.0", 409),
        ("device", "0.8.0", 409),
        ("kubernetes", "0.8.0", 409),
    ],
)
def test_nodes_that_run_none_refuse_it(site: Site, engine: str, version: str, status: int) -> None:
    node_set(engine=engine, agent_version=version)
    answer = booked(site)
    assert answer.status_code == status
    if status == 409:
        assert refused(answer)[1] == "script_not_run"
        assert "H100 80 GB has others, such as gpu-a1-01" in json.loads(answer.content)["detail"]


def test_documents_of_slurms_nodes_have_it_once(site: Site, running: Allocation) -> None:
    def scripts() -> tuple[wire.DesiredScript, ...]:
        with as_system():
            return desired_documents(list(Node.objects.all()), 1)[0].scripts

    name = running.booking.node_name
    assert scripts() == (wire.DesiredScript(booking=name, tenant="helix", text=TEXT),)
    with as_system():
        other = Gpu.objects.order_by("number")[1]
    an_allocation(running.booking, other, state=Allocation.State.ACTIVE)
    assert len(scripts()) == 1
    node_set(agent_version="0.7.0")
    assert scripts() == ()
    node_set(engine="device", agent_version="0.8.0")
    assert scripts() == ()


@pytest.mark.parametrize(("code", "result"), [(0, "success"), (7, "failure")])
def test_its_end_ends_the_booking(site: Site, running: Allocation, code: int, result: str) -> None:
    label = running.booking.label
    running_still = wire.ReportedScript(exit_code=None, file=FILE)
    assert sent(running, running_still, seconds=30) == "applied"
    assert (the_script().log_file, the_script().ended_at) == (FILE, None)
    assert turned(31) == 0

    assert sent(running, over(code)) == "applied"
    # What is said again, or otherwise, changes nothing.
    assert sent(running, over(99, "no"), seconds=70) == "applied"
    assert turned(75) == 1
    assert turned(76) == 0
    booking = the_script().booking
    assert (booking.state, booking.outcome, booking.result) == (State.ENDING, "released", result)
    assert booking.released_at == NOW + timedelta(seconds=60), "time after its end is not charged"
    found = said(site.researcher.get(f"bookings/{label}/script"))
    assert (found["exit_code"], found["log"]) == (code, "epoch 1\ndone\n")
    with as_system():
        texts = [each.text for each in BookingEvent.objects.filter(kind="ending")]
    assert texts == [f"Its script ended with exit code {code}; the GPUs are being cleared."]


def test_the_page_shows_text_output_and_end(site: Site, running: Allocation) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    address = f"/t/helix/bookings/{running.booking.label}"
    page = flat(client.get(address).content.decode())
    assert "the booking ends with it. After a pause it starts from its beginning." in page
    assert "python train.py --secret s3cr3t" in page
    sent(running, over(7, "<b>Traceback</b>\n"))
    page = flat(client.get(address).content.decode())
    assert "Exit code 7 (FAILED)" in page
    assert "&lt;b&gt;Traceback&lt;/b&gt;" in page
    assert FILE in page


def test_a_booking_that_comes_to_another_node_ends_and_says_why(site: Site, running: Allocation) -> None:
    with as_system():
        assert not scripts_ended().exists()
    node_set(engine="device")
    assert turned() == 1
    row = the_script()
    assert (row.ended, row.exit_code, row.booking.state) == ("its node runs no scripts", None, State.ENDING)
    assert row.booking.result == "failure"


def test_a_node_says_nothing_of_what_is_over_there(site: Site, running: Allocation) -> None:
    with as_system():
        Allocation.objects.filter(id=running.id).update(state="ended")
    sent(running, over(0))
    assert the_script().ended_at is None


def test_the_database_keeps_its_bounds(site: Site, running: Allocation) -> None:
    with as_owner(), pytest.raises(IntegrityError, match="script_ended"), transaction.atomic():
        BookingScript.objects.update(exit_code=0)


def test_messages_of_older_sides_are_understood() -> None:
    item = wire.ReportedAllocation(id="a", state="ready", devices=(), error=None, since=1)
    report = wire.Report(epoch=1, observed_generation=1, seq=1, allocations=(item,))
    sealed = wire.seal(report, key=b"k" * 32, key_version=1)
    assert b"script" not in sealed.body
    document = wire.Desired(node="n1", epoch=1, generation=1)
    assert b"script" not in wire.seal(document, key=b"k" * 32, key_version=1).body
