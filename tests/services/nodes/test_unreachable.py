"""Nodes that do not answer: nothing new goes there, what is promised stays, and for how long."""

from datetime import timedelta
from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from allocation.models import Allocation, Booking, Gpu, GpuEvent, Node
from allocation.queries.fleet.nodes import no_new_work_reason
from allocation.rules.nodes.node_policy import NodePolicy, node_policy_of
from allocation.rules.nodes.unreachable import GAP_SECONDS, AnswerWatch, Beat
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.nodes.fleet import node_policy
from allocation.services.runs.interrupt import hardware_vacate
from allocation.services.snapshot.hardware import gpus_read
from allocation.words.reasons import stored_sentence
from tests.builders_allocation import HOUR, Lab, a_booking_request, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

SECOND = timedelta(seconds=1)
OTHER = "gpu-b1-01"
POLICY = NodePolicy()


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def node(name: str = NAME) -> Node:
    with as_system():
        return Node.objects.get(name=name)


def lives(plant: Plant, seconds: int) -> None:
    """Both sides do their work every five seconds."""
    for _ in range(0, seconds, 5):
        plant.agent.wait_s()
        plant.now += 5 * SECOND
        plant.node_works()
        plant.portal_reads()


def silent(plant: Plant, seconds: int = POLICY.silent_after + 15) -> None:
    plant.line.can_send = plant.line.can_receive = False
    lives(plant, seconds)
    assert node().unreachable_since is not None


def requested(plant: Plant, lab: Lab, **ask: object) -> Booking:
    with as_system():
        request = a_booking_request(lab.project, an_ask(**ask))  # type: ignore[arg-type]
        return booking_request(actor=lab.actor, request=request, now=plant.now)


def events(kind: str) -> list[GpuEvent]:
    with as_system():
        return list(GpuEvent.objects.filter(kind=kind))


# The count.


def said(seq: int, *, observed: int = 1, behind: bool = False) -> Beat:
    return Beat(seq, observed, behind)


def test_a_node_is_silent_after_the_policys_time_and_trusted_again_after_a_while() -> None:
    one, watch = uuid4(), AnswerWatch[UUID]()
    assert watch.turn({one: said(1)}, 0, POLICY).unreachable == frozenset()
    assert watch.turn({one: said(1)}, POLICY.silent_after, POLICY).unreachable == frozenset()
    assert watch.turn({one: said(1)}, POLICY.silent_after + 1, POLICY).unreachable == {one}
    assert watch.turn({one: said(1)}, POLICY.silent_limit + 1, POLICY).long_unreachable == {one}
    back = POLICY.silent_limit + 5
    for beat in range(POLICY.heard_again // 5):
        verdict = watch.turn({one: said(2 + beat)}, back + 5 * beat, POLICY)
        assert (verdict.unreachable, verdict.reachable) == (frozenset(), frozenset())
    assert watch.turn({one: said(99)}, back + POLICY.heard_again, POLICY).reachable == {one}


def test_a_line_that_comes_and_goes_does_not_make_it_trusted() -> None:
    one, watch = uuid4(), AnswerWatch[UUID]()
    for beat in range(10):
        verdict = watch.turn({one: said(beat)}, beat * (GAP_SECONDS + 5), POLICY)
        assert verdict.reachable == frozenset()


def test_who_speaks_and_does_not_hear_has_not_answered() -> None:
    one, busy, watch = uuid4(), uuid4(), AnswerWatch[UUID]()
    for beat in range(20):
        signs = {
            one: said(beat, observed=1, behind=True),
            # Under load it is behind at every look, and yet gets on.
            busy: said(beat, observed=beat, behind=True),
        }
        verdict = watch.turn(signs, 5 * beat, POLICY)
    assert verdict.unreachable == {one}


def test_a_bad_entry_of_the_policy_does_not_stop_the_count() -> None:
    assert node_policy_of({"silent_after": -1, "grid": 60}) == POLICY
    assert node_policy_of({"silent_after": 10}).silent_after == 10


def test_an_operator_sets_it_in_the_policy_and_sees_it_there(plant: Plant) -> None:
    said = StringIO()
    with as_system():
        call_command("policy", "silent_after=90", "grid=600", stdout=said)
        assert node_policy() == NodePolicy(silent_after=90)
        with pytest.raises(CommandError, match="silent_after must be a whole number from 1 to"):
            call_command("policy", "silent_after=4000")
    assert "  silent_after = 90\n" in said.getvalue()
    assert f"  start_slow = {POLICY.start_slow}  (default)" in said.getvalue()


# What follows.


def test_nothing_new_is_placed_on_a_silent_node_and_its_asker_is_told_why(plant: Plant, lab: Lab) -> None:
    a_node(OTHER, gpus=1)
    silent(plant)
    first = requested(plant, lab)
    plant.cycle()
    assert {row.gpu.node.name for row in rows_of(first)} == {OTHER}
    second = requested(plant, lab)
    plant.cycle()
    waits = fresh(second)
    assert (waits.state, rows_of(second)) == ("queued", [])
    assert [stored_sentence(reason) for reason in waits.reasons if reason["rule"] == "R85"] == [
        "2 of 3 h100 are on nodes that do not answer."
    ]
    assert "is unreachable" in no_new_work_reason(node())
    assert [event.is_open for event in events("unreachable")] == [True]


def test_without_the_mark_it_would_get_work(plant: Plant, lab: Lab) -> None:
    """The negative control."""
    silent(plant)
    with as_system():
        Node.objects.update(unreachable_since=None)
    booking = requested(plant, lab)
    plant.cycle()
    assert [row.gpu.node.name for row in rows_of(booking)] == [NAME]


def test_it_gets_work_again_when_it_has_answered_for_a_while(plant: Plant, lab: Lab) -> None:
    silent(plant)
    plant.line.can_send = plant.line.can_receive = True
    lives(plant, 15)
    assert node().unreachable_since is not None
    lives(plant, POLICY.heard_again)
    assert node().unreachable_since is None
    assert [event.is_open for event in events("unreachable")] == [False]
    booking = requested(plant, lab)
    plant.round()
    assert fresh(booking).state == "active"


def test_a_node_that_speaks_and_does_not_hear_gets_nothing_new(plant: Plant, lab: Lab) -> None:
    plant.line.can_receive = False
    first = requested(plant, lab)
    plant.cycle()
    assert fresh(first).state == "starting"
    lives(plant, POLICY.silent_after + 10)
    assert node().unreachable_since is not None
    assert node().last_seen == plant.now
    with as_system():
        assert all(gpu.silent for gpu in gpus_read())


def test_what_is_planned_stays_until_it_is_long_silent_and_then_goes_elsewhere(
    plant: Plant, lab: Lab
) -> None:
    booking = requested(plant, lab, starts=plant.now + timedelta(minutes=5), hours=1)
    plant.cycle()
    assert fresh(booking).state == "scheduled"
    a_node(OTHER, gpus=1)
    silent(plant)
    plant.cycle()
    assert [row.gpu.node.name for row in rows_of(booking)] == [NAME]
    # Its time comes, and the node is not notified: what has not started can still move.
    lives(plant, 300)
    plant.cycle()
    assert fresh(booking).state == "scheduled"
    lives(plant, POLICY.silent_limit)
    assert node().long_unreachable
    plant.cycle()
    live = [row for row in rows_of(booking) if row.state in Allocation.LIVE]
    assert [row.gpu.node.name for row in live] == [OTHER]
    with as_system():
        story = booking.events.get(kind="moved")
        assert (story.detail["rule"], NAME in story.sentence) == ("R85", True)
        assert invariants_check() == []


def test_a_promise_on_a_silent_node_is_kept_with_its_start(plant: Plant, lab: Lab) -> None:
    running = requested(plant, lab, count=2, hours=1)
    plant.round()
    waiting = requested(plant, lab, count=2, hours=1)
    plant.cycle()
    promised = fresh(waiting).planned_starts
    assert (fresh(running).state, fresh(waiting).state) == ("active", "queued")
    silent(plant)
    plant.cycle()
    assert (fresh(waiting).state, fresh(waiting).planned_starts) == ("queued", promised)


def test_the_first_to_come_after_a_long_silence_is_safe_from_a_second_look(plant: Plant, lab: Lab) -> None:
    """Running work continues to its end: only proof by its agent or an operator clears it."""
    booking = requested(plant, lab)
    plant.round()
    silent(plant, POLICY.silent_limit + 10)
    with as_system():
        assert hardware_vacate(plant.now) == 0
    assert fresh(booking).state == "active"
    with as_system():
        assert Gpu.objects.filter(health="ok").count() == 2


def test_a_reader_that_could_not_read_counts_anew(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    lives(plant, 10)
    # As `run` does when Redis is away for long: the first look afterwards accuses nobody.
    plant.reader._answers = AnswerWatch[UUID]()
    plant.now += HOUR
    plant.portal_reads()
    assert node().unreachable_since is None
