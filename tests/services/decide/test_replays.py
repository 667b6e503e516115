"""Replays that people ask for, the nightly sample, and what each reader sees of a decision."""

from datetime import UTC, timedelta

import psycopg
import pytest
from django.db import ProgrammingError, transaction
from django.test import Client

from allocation.models import Booking, Decision, DecisionReplay
from allocation.queries.decisions.decisions import changed_bookings
from allocation.queries.decisions.samples import replay_metrics, sample_report
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.replays import replay_request, replays_run, sample_request
from allocation.web.decisions.pages import decision_lines
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.builders_pauses import a_decision
from tests.roles import as_role, as_system
from tests.services.decide.test_replay import rewrite
from tests.services.plant import Plant

pytestmark = pytest.mark.turn


def decided(plant: Plant, *labs: Lab) -> Booking:
    """Books both GPUs for each lab, a second apart; returns the last booking of the first lab."""
    for second, lab in enumerate(labs):
        asked = plant.now + timedelta(seconds=second)
        with as_system():
            booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask(2)), now=asked)
    plant.later(timedelta(minutes=1))
    with as_system():
        last = Booking.objects.filter(tenant=labs[0].tenant).order_by("number").last()
    assert last is not None
    assert last.decision_id is not None
    return last


def test_a_decision_is_explained_and_replayed(plant: Plant, client: Client) -> None:
    helix, north = a_lab("helix", gpus=0), a_lab("northlab", gpus=0)
    waiting = decided(plant, helix, helix, north)
    path = f"/t/helix/decisions/{waiting.decision_id}"
    with as_system():
        client.force_login(User.objects.get(id=helix.actor.user_id))
        other = User.objects.get(id=north.actor.user_id)
    page = client.get(path).content.decode()
    assert waiting.label in page
    assert "northlab" not in page
    # It says why it waits, or which bookings are in the way until when.
    number = waiting.decision_id or 0
    with tenant_tx(helix.tenant.id):
        changed = changed_bookings(number, helix.actor).lines
        lines = list(decision_lines(changed, number, UTC, plant.now, helix.actor))
    assert lines[-1].reasons or lines[-1].holders
    assert f'href="{path}"' in client.get(f"/t/helix/bookings/{waiting.label}").content.decode()
    listed = client.get("/t/helix/decisions").content.decode()
    for href in ("decisions/", f"bookings/{waiting.label}"):
        assert f'href="/t/helix/{href}' in listed
    assert client.get("/t/helix/decisions/999999").status_code == 404

    client.post(f"{path}/replay")
    assert "Waiting for a worker" in client.get(path).content.decode()
    with as_system():
        assert replays_run(lambda: plant.now) == 1
    assert "byte for byte" in client.get(path).content.decode()

    # A decision that changed nothing of the reader's is missing.
    last = decided(plant, north)
    if last.decision_id != waiting.decision_id:
        foreign = f"/decisions/{last.decision_id}"
        assert client.get(f"/t/helix{foreign}").status_code == 404
        assert client.post(f"/t/helix{foreign}/replay").status_code == 404
        client.force_login(other)
        assert last.label in client.get(f"/t/northlab{foreign}").content.decode()


def test_the_sample_of_the_night_finds_a_changed_plan(plant: Plant, owner_dsn: str, client: Client) -> None:
    lab = a_lab("helix", gpus=0)
    waiting = decided(plant, lab, lab)
    with as_system():
        decision = Decision.objects.get(id=waiting.decision_id or 0)
    with psycopg.connect(owner_dsn) as owner:
        rewrite(owner, decision, bytes(decision.plan)[:-9] + b"damaged!!")
    plant.now += timedelta(hours=20)
    with as_system():
        assert sample_request(plant.now) > 0
        assert sample_request(plant.now) == 0
        replays_run(lambda: plant.now)
        report = sample_report()
        values = next(iter(replay_metrics(plant.now))).values
    assert report is not None
    assert report.bad >= 1
    assert report.waiting == 0
    assert sum(each.number or 0 for each in values) == report.total
    client.force_login(an_operator())
    assert "did not give their stored plan again: " in client.get("/ops/decisions").content.decode()
    page = client.get(f"/ops/decisions/{decision.id}").content.decode()
    assert waiting.label in page
    assert "The stored bytes are damaged" in page


@pytest.mark.django_db
def test_a_web_process_can_ask_and_not_answer() -> None:
    lab = a_lab("helix")
    decision = a_decision(NOW)
    with as_system():
        replay = replay_request(person_id=lab.actor.user_id, number=decision.id, now=decision.at)
        again = replay_request(person_id=lab.actor.user_id, number=decision.id, now=decision.at)
        assert again.id == replay.id
    with as_role("portal_web"), pytest.raises(ProgrammingError), transaction.atomic():
        DecisionReplay.objects.update(finished_at=decision.at, outcome="same")
    # A process that dies three times does not keep the queue for ever.
    with as_system():
        DecisionReplay.objects.update(attempts=3, started_at=decision.at)
        assert replays_run(lambda: decision.at + HOUR) == 0
        assert DecisionReplay.objects.get().outcome == "failed"
    with as_system(), pytest.raises(Refused, match="no such decision"):
        replay_request(person_id=lab.actor.user_id, number=decision.id + 1, now=decision.at)
