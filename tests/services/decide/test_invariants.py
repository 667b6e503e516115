"""The check that must find nothing: here each thing that it must find."""

from dataclasses import dataclass
from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command

from allocation.models import Allocation, Booking, Gpu, PolicyVersion
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    an_allocation,
)
from tests.roles import as_system
from tests.servers.servers import DATABASE, Servers

pytestmark = pytest.mark.turn


@dataclass(frozen=True)
class Hall:
    """A lab with one booking of each kind, on a GPU of its own each, and nothing wrong."""

    lab: Lab
    active: Booking
    scheduled: Booking
    waiting: Booking
    ended: Booking
    row: Allocation


@pytest.fixture
def hall(real_db: Servers) -> Hall:
    lab = a_lab("helix", gpus=3)
    with as_system():
        first, second, _ = Gpu.objects.order_by("number")
    active = a_booking(lab.project, lab.actor.user_id, state="active")
    row = an_allocation(active, first, state="active")
    scheduled = a_booking(lab.project, lab.actor.user_id, state="scheduled", starts=NOW + HOUR)
    an_allocation(scheduled, second, starts=NOW + HOUR)
    with as_system():
        waiting = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
        ended = a_booking(lab.project, lab.actor.user_id, state="cancelled", held="0")
        Booking.objects.filter(id=ended.id).update(charged=0, ended_at=NOW)
        event_add(ended, kind="cancelled", sentence=event_text("unplaceable"), now=NOW)
        assert invariants_check() == []
        assert PolicyVersion.objects.count() == 1
    return Hall(lab, active, scheduled, waiting, ended, row)


def a_receipt(booking: str, *, ended: str = "NULL", emptied: str = "NULL") -> str:
    """SQL for a pause of the booking, for nobody, with a deadline after its end."""
    return f"""
        INSERT INTO allocation_pause (id, tenant_id, booking_id, number, cause_id,
            beneficiary_label, may_wait, decision_id, policy_version, rule, sentence, method,
            ready_at, notified_at, deadline, grace_seconds, ends_before, more_times_used,
            lost_seconds, credit_seconds, credit, charged, ended_at, emptied_at)
          SELECT gen_random_uuid(), tenant_id, id, 1, gen_random_uuid(), '', true, 1, 1, 'R7', '',
            'stop', coalesce(planned_starts, not_before), not_before,
            not_before + interval '3 hours', 60, not_before + interval '4 hours', 0, 0, 0, 0, 0,
            {ended}, {emptied}
          FROM allocation_booking WHERE id = '{booking}';"""  # noqa: S608 (names of the test's own)


# Each break with the constraint that forbids it taken away first, and the name of what is found.
BREAKS = {
    "double booking": """
        ALTER TABLE allocation_allocation DROP CONSTRAINT allocation_no_double_booking;
        UPDATE allocation_allocation SET gpu_id = '{gpu}', gpu_number = {number}
          WHERE booking_id = '{scheduled}'""",
    "a GPU whole, sliced and shared at once": """
        ALTER TABLE allocation_allocation DROP CONSTRAINT allocation_no_double_booking;
        ALTER TABLE allocation_allocation DROP CONSTRAINT allocation_one_mode;
        UPDATE allocation_allocation SET gpu_id = '{gpu}', gpu_number = {number}, mode = 'sliced',
          profile = '1g.10gb', start = 0, size = 1 WHERE booking_id = '{scheduled}'""",
    "two on the same slots": """
        ALTER TABLE allocation_occupancy DROP CONSTRAINT occupancy_once_on_hardware;
        INSERT INTO allocation_occupancy (allocation_id, gpu_id, slots, opened)
          SELECT id, '{gpu}', int8range({number} * 8, {number} * 8 + 1), now()
          FROM allocation_allocation WHERE booking_id = '{scheduled}'""",
    "on a node without an occupancy": """
        UPDATE allocation_occupancy SET closed = now()""",
    "an occupancy of nothing": """
        INSERT INTO allocation_occupancy (allocation_id, gpu_id, slots, opened)
          SELECT id, gpu_id, slots, now()
          FROM allocation_allocation WHERE booking_id = '{scheduled}'""",
    "a node ahead of its own assignment": """
        UPDATE allocation_node SET published_generation = generation + 1""",
    "money held for what is over": """
        UPDATE allocation_booking SET state = 'cancelled', charged = 0, ended_at = now()
          WHERE id = '{waiting}'""",
    "a charge that is not in the ledger": """
        UPDATE allocation_booking SET hold_amount = 1, charged = 1 WHERE id = '{ended}'""",
    "a hold that is not in the ledger": """
        UPDATE allocation_booking SET hold_amount = hold_amount + 1 WHERE id = '{waiting}'""",
    "a budget overspent": """
        ALTER TABLE billing_account DROP CONSTRAINT account_never_overspent;
        UPDATE billing_account SET credits = 1 WHERE kind = 'budget'""",
    "a balance that is not the sum of its transfers": """
        UPDATE billing_account SET debits = debits + 1 WHERE kind = 'budget'""",
    "a row of another tenant": """
        UPDATE allocation_allocation SET project_id = gen_random_uuid()
          WHERE booking_id = '{active}'""",
    "part of a gang": """
        UPDATE allocation_booking SET ask = jsonb_set(ask, '{{count}}', '2')
          WHERE id = '{active}'""",
    "a member in another state than its booking": """
        UPDATE allocation_allocation SET state = 'starting' WHERE booking_id = '{active}'""",
    "a transition that is not in the table": """
        INSERT INTO allocation_bookingevent
            (tenant_id, booking_id, at, kind, state, sentence, detail)
          SELECT tenant_id, id, now(), 'x', 'paused', '', '{{}}' FROM allocation_booking
          WHERE id = '{waiting}'""",
    "a state that is not the last of its history": """
        UPDATE allocation_booking SET state = 'queued' WHERE id = '{waiting}'""",
    "sums of charges that are not the ledger's": """
        INSERT INTO allocation_chargesum (tenant_id, account_id, day, tier, gpu_class, lines,
                                          corrections, exact, amount)
          SELECT tenant_id, id, '2026-11-17', '', '', 1, 0, 1, 1 FROM billing_account
          WHERE kind = 'budget' LIMIT 1""",
    "a settled run that is not in the ledger": """
        UPDATE allocation_booking SET settled = 1 WHERE id = '{active}'""",
    "a pause without one open receipt": """
        UPDATE allocation_booking SET state = 'pausing' WHERE id = '{active}'""",
    "an open receipt of a booking that is not paused": a_receipt("{active}"),
    "paused for nobody, or for itself": a_receipt("{active}"),
    "stopped before its time": a_receipt("{active}", emptied="not_before + interval '3 hours'"),
    "a pause that was neither resumed nor refunded": f"""{a_receipt("{waiting}", ended="now()")}
        UPDATE allocation_booking SET state = 'cancelled', charged = 0, ended_at = now()
          WHERE id = '{{waiting}}'""",  # noqa: S608 (names of the test's own)
    "over without an end": """
        UPDATE allocation_booking SET ended_at = now() WHERE id = '{waiting}'""",
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_found_and_named(name: str, hall: Hall, real_db: Servers) -> None:
    said = {
        "gpu": hall.row.gpu_id,
        "number": hall.row.gpu_number,
        **{each: getattr(hall, each).id for each in ("active", "scheduled", "waiting", "ended")},
    }
    admin = real_db.dsn("postgres", DATABASE)
    with psycopg.connect(admin) as superuser:
        # No triggers and no foreign keys: as if they had never been.
        superuser.execute("SET session_replication_role = replica")
        superuser.execute(BREAKS[name].format(**said))

    with as_system():
        found = {violation.name for violation in invariants_check()}
        assert name in found
        output = StringIO()
        with pytest.raises(CommandError, match="violation"):
            call_command("invariants", stdout=output)
        assert name in output.getvalue()


def test_a_healthy_site_is_said_to_be_well(hall: Hall) -> None:
    output = StringIO()
    with as_system():
        call_command("invariants", stdout=output)
    assert output.getvalue() == "All invariants hold.\n"
