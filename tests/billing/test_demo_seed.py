"""The demo site: made once, topped up on later days, and true in every figure."""

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.apps import apps
from django.db.models import Count

from allocation.agent.simulated_hardware import Hardware, models_load
from allocation.models import Allocation, Blackout, Booking, Gpu, Series
from allocation.queries.catalogue import ask_catalogue
from allocation.rules.ask import AskDocument, parse_ask
from allocation.rules.states import State
from billing.queries import ledger_check, reference_totals
from portal.seed import seed
from portal.seed_people import keys_write
from tenants.models import ApiToken, User
from tenants.services import token_verify
from tests.roles import as_system

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 18, 10, 7, 31, tzinfo=UTC)
PARTS = {
    "researcher",
    "lead",
    "tenant_admin",
    "viewer",
    "operator",
    "other_tenant_researcher",
}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "demo.json"


@pytest.fixture(autouse=True)
def _system() -> Iterator[None]:
    with as_system():
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


def test_the_site_has_a_past_a_present_and_a_future(keys: Path) -> None:
    run(keys)
    states = {
        row["state"]: row["n"] for row in Booking.objects.values("state").annotate(n=Count("id"))
    }
    past = sum(states.get(str(s), 0) for s in (State.ENDED, State.CANCELLED, State.REFUSED))
    assert past >= 55
    assert Booking.objects.filter(state=State.SCHEDULED, starts=NOW).count() >= 8
    assert Booking.objects.filter(state=State.SCHEDULED, starts__gt=NOW).count() >= 25
    assert Booking.objects.filter(state=State.REQUESTED, name__endswith="-big").count() == 3
    assert Allocation.objects.filter(state="planned", mode="sliced").exists()


def test_there_is_one_of_each_rarer_thing(keys: Path) -> None:
    run(keys)
    asked = Booking.objects.filter(state=State.REQUESTED)
    assert asked.filter(ask__share=250).count() == 1
    assert asked.filter(ask__workload="training").count() == 1
    assert asked.filter(tier__pausable=True, tier__replace_on_lost=True).count() == 1
    series = Series.objects.get()
    assert (series.bookings.count(), series.failed) == (4, [])
    maintenance = Blackout.objects.get()
    assert timedelta(days=1) < maintenance.starts - NOW < timedelta(days=2)
    in_the_way = Allocation.objects.filter(
        gpu__node=maintenance.node, period__overlap=(maintenance.starts, maintenance.ends)
    )
    assert not in_the_way.exists()


def test_running_again_changes_nothing(keys: Path) -> None:
    run(keys)
    before, file = row_counts(), keys.read_bytes()
    assert run(keys, NOW + timedelta(minutes=5)) == 0
    assert row_counts() == before
    assert keys.read_bytes() == file


def test_a_start_days_later_fills_the_new_days_once(keys: Path) -> None:
    run(keys)
    later = NOW + timedelta(days=3)
    assert run(keys, later) > 10
    assert Booking.objects.filter(state=State.SCHEDULED, starts=later).count() >= 5
    assert Booking.objects.filter(starts__gt=later + timedelta(days=5)).exists()
    assert run(keys, later + timedelta(hours=1)) == 0


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
    assert User.objects.get(username="olaf").is_staff
    assert not User.objects.exclude(username="olaf").filter(is_staff=True).exists()


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
        keys_write(keys, "http://127.0.0.1:8000", NOW)
        assert set(json.loads(keys.read_text())["tokens"]) == PARTS
    keys.unlink()
    keys_write(keys, "http://127.0.0.1:8000", NOW)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600


def test_the_ledger_says_the_same_as_the_bookings(keys: Path) -> None:
    run(keys)
    assert ledger_check() == []
    for booking in Booking.objects.all():
        held, charged = reference_totals(tenant_id=booking.tenant_id, reference=booking.id)
        is_open = booking.state in (State.SCHEDULED, State.REQUESTED)
        assert held == (booking.held if is_open else 0)
        assert charged == (booking.charged or 0)


def test_gpus_are_those_that_the_simulated_agents_will_report(keys: Path) -> None:
    run(keys)
    (h100,) = (key for key, model in models_load().items() if "H100" in model.name)
    hardware = Hardware("gpu-a1-01", [h100] * 8, state=None, clock=lambda: 0.0)
    rows = Gpu.objects.filter(node__name="gpu-a1-01").order_by("index")
    assert [gpu.uuid for gpu in rows] == [gpu.uuid for gpu in hardware.gpus]


def test_what_people_typed_means_what_was_booked(keys: Path) -> None:
    run(keys)
    catalogue = ask_catalogue()
    for booking in Booking.objects.all():
        parsed = parse_ask(booking.request_text, catalogue=catalogue, now=NOW, zone=ZoneInfo("UTC"))
        said, stored = parsed.document(first=True), AskDocument.from_json(booking.ask)
        assert (said.count, said.profile, said.classes, said.duration) == (
            stored.count,
            stored.profile,
            stored.classes,
            stored.duration,
        ), booking.request_text
