"""The demo site: made by the portal's own services, and true in every figure."""

import ast
import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.apps import apps
from django.db.models import Count, F, Q
from pytest_django.plugin import DjangoDbBlocker

from allocation.models import (
    Allocation,
    Booking,
    BookingEvent,
    Decision,
    GpuEvent,
    Maintenance,
    Node,
    Occupancy,
    Pause,
    Series,
)
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import AskDocument, parse_ask
from allocation.rules.states import State
from allocation.services.decide.invariants import invariants_check
from billing.queries import ledger_check, reference_totals
from devtools.demo import history as seed_past
from devtools.demo.nodes import inventory_of
from devtools.demo.people import credentials_write
from devtools.demo.site import seed
from devtools.launch.programs import AGENTS
from portal.storage.audit_sources import SOURCES
from tenants.models import ApiToken, AuditEntry, OperatorRole, User
from tenants.services import token_verify
from tenants.services.sealed_log.chain import chain_verify
from tests.roles import as_owner
from tests.servers.servers import Servers

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 18, 10, 7, 31, tzinfo=UTC)
EDGE = NOW.replace(second=0)
PARTS = {
    "researcher",
    "lead",
    "tenant_admin",
    "viewer",
    "operator",
    "second_operator",
    "reading_operator",
    "other_tenant_researcher",
}
# What the portal writes down of bookings, devices, money and what was done: never a seed.
RECORDS = {
    model.__name__
    for app in ("allocation", "billing", "tenants")
    for model in apps.get_app_config(app).get_models()
} - {"GpuClass", "GpuModel", "Tier", "WorkSpeed"}
WAITING = (State.REQUESTED, State.AWAITING_APPROVAL, State.QUEUED)
WRITES = {"create", "get_or_create", "update_or_create", "bulk_create", "update", "bulk_update"}


class KilledError(Exception):
    """Somebody pressed Ctrl-C while the past was made."""


# Half a minute of processor time. `make test` has other tests that start the demo itself.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def keys(
    servers: Servers,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """The file of a demo whose first start was interrupted half-way, and continued; made once."""
    from django.db import connections  # noqa: PLC0415 (settings are not there on import)

    path = tmp_path_factory.mktemp("demo") / "demo.json"
    with django_db_blocker.unblock():
        try:
            with as_owner():
                with pytest.MonkeyPatch.context() as patch:
                    _killed_at(patch, NOW - timedelta(days=4))
                    with pytest.raises(KilledError):
                        run(path)
                run(path)
            yield path
        finally:
            connections.close_all()
            servers.database_renew()


def _killed_at(patch: pytest.MonkeyPatch, instant: datetime) -> None:
    keep = seed_past._housekeeping

    def housekeeping(now: datetime) -> None:
        if now > instant:
            raise KilledError
        keep(now)

    patch.setattr(seed_past, "_housekeeping", housekeeping)


@pytest.fixture(autouse=True)
def _system(keys: Path) -> Iterator[None]:
    with as_owner():
        yield


def run(keys: Path, now: datetime = NOW) -> int:
    return seed(now=now, path=keys, url="http://127.0.0.1:8000")


def row_counts() -> dict[str, int]:
    models = (model for model in apps.get_models() if model._meta.app_label != "contenttypes")
    wanted = ("tenants", "billing", "allocation")
    return {
        model._meta.label: model._default_manager.count()
        for model in models
        if model._meta.app_label in wanted
    }


def story(booking: Booking) -> list[str]:
    return list(booking.events.order_by("id").values_list("kind", flat=True))


def test_the_site_has_a_past_a_present_and_a_future() -> None:
    states = {row["state"]: row["n"] for row in Booking.objects.values("state").annotate(n=Count("id"))}
    past = sum(states.get(str(s), 0) for s in (State.ENDED, State.CANCELLED, State.REFUSED))
    assert past >= 55
    assert Booking.objects.filter(state=State.SCHEDULED, starts=EDGE).count() >= 8
    assert Booking.objects.filter(state=State.SCHEDULED, starts__gt=NOW).count() >= 25
    assert Booking.objects.filter(state=State.REQUESTED, name__endswith="-big").count() == 3
    assert Allocation.objects.filter(state="planned", mode="sliced").exists()
    # Nothing is under way: the agents that come now begin with nothing.
    assert set(states) <= {"ended", "cancelled", "refused", "scheduled", *WAITING}


def test_there_is_one_of_each_rarer_thing() -> None:
    asked = Booking.objects.filter(state=State.REQUESTED)
    assert asked.filter(ask__share=250).count() == 1
    assert asked.filter(ask__workload="training").count() == 1
    assert asked.filter(tier__pausable=True, tier__replace_on_lost=True).count() == 1
    series = Series.objects.get()
    assert (series.bookings.count(), series.failed) == (4, [])
    maintenance = Maintenance.objects.get(ends__gt=NOW)
    assert timedelta(days=1) < maintenance.starts - NOW < timedelta(days=2)
    in_the_way = Allocation.objects.filter(
        gpu__node=maintenance.node, period__overlap=(maintenance.starts, maintenance.ends)
    )
    assert not in_the_way.exists()
    over = Booking.objects.filter(state=State.ENDED)
    outcomes = set(over.values_list("outcome", flat=True))
    assert {"completed", "released", "no_show"} <= outcomes
    assert over.filter(ask__share=250).exists()
    pause = Pause.objects.get(booking__name="scaling-sweep")
    assert pause.acknowledged_at is not None
    assert pause.resumed_at is not None
    assert pause.charged > 0
    broken = GpuEvent.objects.get(kind="xid")
    assert BookingEvent.objects.filter(kind="broken_off", at=broken.at).exists()
    assert not Node.objects.filter(gpus__needs_operator=True).exists()
    for kind in ("changed", "no_show_warned", "resumed", "cancelled", "refused"):
        assert BookingEvent.objects.filter(kind=kind).exists(), kind


def test_every_run_has_what_the_services_write() -> None:
    for booking in Booking.objects.filter(state=State.ENDED).select_related("decision"):
        kinds = story(booking)
        assert kinds[0] == "requested"
        assert kinds[-1] == "ended"
        order = [
            kinds.index(each) for each in ("scheduled", "starting", "started", "ending") if each in kinds
        ]
        assert order == sorted(order)
        assert "started" in kinds
        assert ("checked_in" in kinds) == (booking.outcome != "no_show")
        assert booking.decision is not None
        assert booking.charged is not None
        assert booking.charged > 0
        rows = booking.allocations.exclude(state=Allocation.State.SUPERSEDED)
        assert rows.exists()
        assert not rows.exclude(state=Allocation.State.ENDED).exists()
    places = Allocation.objects.filter(state=Allocation.State.ENDED)
    closed = Occupancy.objects.filter(closed__gt=F("opened"))
    assert set(places.values_list("id", flat=True)) == set(closed.values_list("allocation_id", flat=True))
    assert not Occupancy.objects.filter(closed=None).exists()


def test_every_booking_was_asked_for_and_every_answer_decided() -> None:
    asked = AuditEntry.objects.filter(action="booking.request").values_list("object_id", flat=True)
    assert set(asked) == {str(key) for key in Booking.objects.values_list("id", flat=True)}
    answered = Booking.objects.exclude(state__in=(State.REQUESTED, State.AWAITING_APPROVAL))
    assert not answered.filter(Q(decision=None) & ~Q(state=State.CANCELLED)).exists()
    assert Decision.objects.exclude(at__lt=EDGE).count() == 0
    last = BookingEvent.objects.exclude(booking__submitted=NOW).order_by("-at")[0]
    assert last.at < EDGE


def test_nothing_is_broken_and_the_log_is_sealed() -> None:
    assert invariants_check() == []
    chains = [chain for source in SOURCES for chain in chain_verify(source)]
    assert len(chains) >= len(SOURCES)
    assert [fault for chain in chains for fault in chain.faults] == []


def test_no_seed_writes_what_the_portal_records() -> None:
    """A seed that makes such a row, or speaks SQL, is no demo of what the portal does."""
    for path in sorted((ROOT / "portal").glob("seed*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "django.db":
                assert {name.name for name in node.names} <= {"transaction"}, path.name
            if not isinstance(node, ast.Call):
                continue
            called, names = (
                node.func,
                {n.id for n in ast.walk(node.func) if isinstance(n, ast.Name)},
            )
            is_made = isinstance(called, ast.Name) and called.id in RECORDS
            is_written = isinstance(called, ast.Attribute) and called.attr in WRITES
            assert not is_made, f"{path.name}:{node.lineno}"
            assert not (is_written and names & RECORDS), f"{path.name}:{node.lineno}"


def test_the_ledger_says_the_same_as_the_bookings() -> None:
    assert ledger_check() == []
    for booking in Booking.objects.all():
        held, charged = reference_totals(tenant_id=booking.tenant_id, reference=booking.id)
        is_open = booking.state in (*WAITING, State.SCHEDULED)
        assert held == (booking.hold_amount if is_open else 0)
        assert charged == (booking.charged or 0)


def test_gpus_are_those_that_the_simulated_agents_will_report() -> None:
    for name, hardware in AGENTS.items():
        found = inventory_of(name, hardware)
        rows = Node.objects.get(name=name).gpus.order_by("index")
        assert [gpu.uuid for gpu in rows] == [gpu.uuid for gpu in found.gpus]


def test_what_people_typed_means_what_was_booked() -> None:
    catalogue = ask_catalogue()
    # A change of its fields leaves a booking without the words that asked for it.
    typed = Booking.objects.exclude(request_text="")
    assert 0 < Booking.objects.count() - typed.count() < 5
    for booking in typed:
        parsed = parse_ask(
            booking.request_text,
            catalogue=catalogue,
            now=booking.submitted,
            zone=ZoneInfo(booking.zone),
        )
        said, stored = parsed.document(first=True), AskDocument.from_json(booking.ask)
        assert (said.count, said.profile, said.classes, said.duration, said.share) == (
            stored.count,
            stored.profile,
            stored.classes,
            stored.duration,
            stored.share,
        ), booking.request_text
        if booking.series_id is None:
            assert said.starts == stored.starts, booking.request_text


def test_every_key_in_the_file_opens_its_door(keys: Path) -> None:
    run(keys)
    document = json.loads(keys.read_text())
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert document["url"] == "http://127.0.0.1:8000"
    assert set(document["tokens"]) == set(document["passwords"]) == PARTS
    for part in PARTS:
        holder = token_verify(document["tokens"][part], now=NOW)
        user = User.objects.get(username=document["passwords"][part]["username"])
        assert holder is not None
        assert holder.user_id == user.pk
        assert user.check_password(document["passwords"][part]["password"])
    roles = OperatorRole.objects.filter(OperatorRole.in_force())
    assert dict(roles.values_list("user__username", "role")) == {
        "olaf": "site",
        "svea": "site",
        "rita": "read_only",
    }
    assert set(User.objects.filter(is_staff=True)) == {each.user for each in roles}


def test_a_key_that_no_longer_works_is_made_anew_and_the_others_stay(keys: Path) -> None:
    run(keys)
    before = json.loads(keys.read_text())
    ApiToken.objects.filter(user__username="mara").update(revoked=NOW)
    run(keys)
    after = json.loads(keys.read_text())
    changed = {part for part in PARTS if before["tokens"][part] != after["tokens"][part]}
    assert changed == {"researcher"}
    assert token_verify(after["tokens"]["researcher"], now=NOW) is not None
    assert before["passwords"] == after["passwords"]


def test_a_lost_or_broken_file_is_written_again(keys: Path) -> None:
    run(keys)
    for content in ("", "{", "[]"):
        keys.write_text(content)
        credentials_write(keys, "http://127.0.0.1:8000", NOW)
        assert set(json.loads(keys.read_text())["tokens"]) == PARTS
    keys.unlink()
    credentials_write(keys, "http://127.0.0.1:8000", NOW)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600


def test_running_again_changes_nothing(keys: Path) -> None:
    before, file = row_counts(), keys.read_bytes()
    assert run(keys, NOW + timedelta(minutes=5)) == 0
    assert row_counts() == before
    assert keys.read_bytes() == file


def test_a_start_days_later_asks_for_the_new_days_once(keys: Path) -> None:
    run(keys)
    later = NOW + timedelta(days=3)
    assert run(keys, later) > 10
    new = Booking.objects.filter(submitted=later)
    # Whether there is room is for the portal to say, once it runs.
    assert not new.exclude(state=State.REQUESTED).exists()
    soon = later.replace(second=0) + timedelta(minutes=1)
    assert new.filter(starts=soon).count() >= 5
    assert new.filter(starts__gt=later + timedelta(days=5)).exists()
    assert run(keys, later + timedelta(hours=1)) == 0
