"""Lines of progress that nodes send: kept for the booking that runs there, counted if they change nothing."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

import wire
from allocation.features.progress.models import Progress
from allocation.models import Allocation, Booking, EventCounter, Gpu, Node
from allocation.services.nodes.telemetry import samples_store
from tests.builders_allocation import NOW, a_booking, a_lab, a_node, an_allocation
from tests.roles import as_system

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def place() -> Allocation:
    """A whole GPU whose booking runs since an hour."""
    lab = a_lab("helix", gpus=1)
    with as_system():
        gpu = Gpu.objects.get()
    booking = a_booking(lab.project, lab.actor.user_id, state="active")
    with as_system():
        Booking.objects.filter(id=booking.id).update(ready_at=NOW - HOUR)
    return an_allocation(booking, gpu, state="active")


def sent(place: Allocation, *lines: str, node: UUID | None = None) -> None:
    """What the node of the place sends, one line in each message."""
    with as_system():
        sender = node or Gpu.objects.get(id=place.gpu_id).node_id
        samples_store(
            [
                (
                    sender,
                    wire.Telemetry(
                        sent_at=int(NOW.timestamp()),
                        progress=(wire.ProgressLine(allocation=place.id.hex, line=line),),
                    ),
                )
                for line in lines
            ],
            NOW,
        )


def kept() -> Progress | None:
    with as_system():
        return Progress.objects.first()


def refused() -> int:
    with as_system():
        row = EventCounter.objects.filter(name="progress_refused").first()
    return row.count if row else 0


def test_a_line_is_kept_like_a_report_over_rest(place: Allocation) -> None:
    sent(place, '{"step": 1200, "of": 10000, "unit": "epoch", "metrics": {"loss": 0.31}}')
    row = kept()
    assert row is not None
    assert (row.booking_id, row.step, row.of, row.unit) == (place.booking_id, 1200, 10000, "epoch")
    assert (row.metrics, row.at, refused()) == ({"loss": 0.31}, NOW, 0)
    sent(place, '{"step": 1300}')
    row = kept()
    assert row is not None
    assert (row.step, row.of) == (1300, 10000)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 5",
        "[1]",
        "5",
        '"step"',
        "[" * 1000,
        '{"step": NaN}',
        '{"step": 1e999}',
        '{"step": -1}',
        '{"step": "7"}',
        '{"step": true}',
        '{"step": ' + "9" * 900 + "}",
        '{"steps": 7}',
        '{"of": 7}',
        '{"step": 7, "of": 3}',
        '{"step": 7, "metrics": {"loss": "low"}}',
        '{"step": 7, "metrics": {"a b": 1}}',
        '{"step": 7, "unit": "' + "u" * 25 + '"}',
        '{"step": 7, "booking": "BK-1"}',
    ],
)
def test_a_line_that_is_no_report_changes_nothing_and_is_counted(place: Allocation, line: str) -> None:
    sent(place, line)
    assert (kept(), refused()) == (None, 1)


def test_a_bad_line_keeps_no_other_from_being_kept(place: Allocation) -> None:
    sent(place, '{"step": 100}', '{"step": 50}', "{", '{"step": 200}')
    row = kept()
    assert row is not None
    assert (row.step, refused()) == (200, 2)


def test_a_node_says_nothing_of_work_that_does_not_run_on_it(place: Allocation) -> None:
    other = a_node("gpu-b9-01", gpus=1)
    sent(place, '{"step": 1}', node=other.id)
    unknown = Allocation(id=uuid4(), gpu_id=place.gpu_id)
    sent(unknown, '{"step": 1}')
    assert (kept(), refused()) == (None, 0)
    with as_system():
        Allocation.objects.filter(id=place.id).update(state="releasing")
    sent(place, '{"step": 1}')
    assert kept() is None


def test_the_lines_of_a_message_are_bounded_and_travel_signed(place: Allocation) -> None:
    line = wire.ProgressLine(allocation=place.id.hex, line='{"step": 1, "unit": "Schritt – ä"}')
    message = wire.Telemetry(sent_at=1, progress=(line,) * (wire.PROGRESS_MAX + 5))
    key = b"k" * 32
    sealed = wire.seal(message, key=key, key_version=1)
    assert wire.open_report(sealed, {1: key}) == message
    plain: dict[str, Any] = json.loads(wire.seal(wire.Telemetry(sent_at=1), key=key, key_version=1).body)
    assert "progress" not in plain, "an older portal reads messages without it"
    with as_system():
        node = Gpu.objects.get(id=place.gpu_id).node_id
        samples_store([(node, message)], NOW)
    # All lines but the first say the same step again, which is no step back.
    assert refused() == 0
    row = kept()
    assert row is not None
    assert row.step == 1


def test_a_run_keeps_the_driver_of_its_node_and_a_resumed_one_that_of_the_next(place: Allocation) -> None:
    with as_system():
        Node.objects.update(driver="550.54")
    sent(place, '{"step": 1200}')
    with as_system():
        Node.objects.update(driver="570.86")
    sent(place, '{"step": 1300}')
    row = kept()
    assert row is not None
    assert row.driver == "550.54"
    with as_system():
        Progress.objects.update(at=NOW - 2 * HOUR, anchor_at=NOW - 2 * HOUR, mark_at=NOW - 2 * HOUR)
    sent(place, '{"step": 1400}')
    row = kept()
    assert row is not None
    assert row.driver == "570.86"
