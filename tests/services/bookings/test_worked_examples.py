"""Worked examples of changes that need a guarantee, and how a change could be misused for one."""

from datetime import timedelta

import pytest
from django.db.models import F

from allocation.models import Booking
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.checks.terms import target_of
from allocation.services.runs.start import allocations_ready
from allocation.services.snapshot.snapshot import snapshot_take
from solver.model.inputs import Held
from tenants.models import Quota
from tenants.platform.wall import tenant_tx
from tests.builders import a_tier
from tests.builders_allocation import HOUR, NOW, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_changes import change_of, fresh, patched, requested, turn, window
from tests.services.bookings.test_give_back import names_of, rows

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """Eight GPUs, of which four are guaranteed."""
    lab = a_lab("helix", gpus=8)
    a_tier(pausable=True)
    with as_system():
        half = F("guaranteed_units") / 2
        Quota.objects.update(guaranteed_units=half, borrow_limit_units=half)
    return lab


def began(booking: Booking) -> Booking:
    with as_system():
        allocations_ready({r.id: [f"GPU-{r.gpu_number}"] for r in rows(booking)}, NOW)
    return fresh(booking)


def held_rows(booking: Booking, hours: float) -> list[Held]:
    with as_system():
        snapshot = snapshot_take(NOW + hours * HOUR)
    return [row for row in snapshot.held if row.booking == str(booking.id)]


def grant(booking: Booking, hours: float) -> tuple[int, int]:
    (found,) = {row.granted for row in held_rows(booking, hours)}
    assert found is not None
    return found


def test_6_what_an_extension_adds_is_granted_after_what_was_granted_before_it(lab: Lab) -> None:
    p = requested(lab, an_ask(4, hours=2))
    q = requested(lab, window(4, 2, 4), now=NOW + MINUTE)
    turn(NOW)
    began(p)
    before = [(row.since, row.preemptor) for row in held_rows(p, 1)]
    turn(NOW + MINUTE)
    patched(lab, p, duration=4 * 3600)
    turn(NOW + 2 * MINUTE)
    assert change_of(p).reasons == []
    assert grant(p, 1) < grant(q, 1)
    assert grant(p, 2.5) > grant(q, 2.5)
    # The protection of the run is not renewed.
    assert [(row.since, row.preemptor) for row in held_rows(p, 2.5)] == before


@pytest.mark.parametrize(("count", "is_later"), [(6, True), (4, False)])
def test_a_borrowed_gang_that_shrinks_into_the_guarantee_takes_it_from_nobody(
    lab: Lab,
    count: int,
    is_later: bool,  # noqa: FBT001
) -> None:
    gang = requested(lab, an_ask(count, hours=4))
    turn(NOW)
    began(gang)
    other = requested(lab, an_ask(2, hours=4), now=NOW + MINUTE)
    turn(NOW + MINUTE)
    assert grant(gang, 1) < grant(other, 1)
    names = tuple(names_of(rows(gang))[:2])
    with tenant_tx(lab.tenant_id):
        booking_patch(
            actor=lab.actor,
            booking=fresh(gang),
            patch=Patch(give_back=names),
            revision=None,
            now=NOW + HOUR,
        )
    turn(NOW + HOUR)
    with as_system():
        assert gang.allocations.filter(abandoned=True).count() == 2
    kept = [row for row in held_rows(gang, 1) if row.granted is not None]
    assert len(kept) == count - 2
    assert all((row.granted > grant(other, 1)) is is_later for row in kept)  # type: ignore[operator]


def test_a_start_that_is_planned_again_breaks_no_edit(lab: Lab) -> None:
    first = requested(lab, an_ask(8, hours=4))
    turn(NOW)
    began(first)
    mine = requested(lab, an_ask(2, hours=1), now=NOW + MINUTE)
    turn(NOW + MINUTE)
    seen = fresh(mine)
    patched(lab, first, now=NOW + 2 * MINUTE, duration=3600)
    turn(NOW + 2 * MINUTE)
    assert fresh(mine).planned_starts == NOW + HOUR != seen.planned_starts
    assert fresh(mine).version > seen.version
    patch = Patch(ask=target_of(seen).ask, name="again")
    with tenant_tx(lab.tenant_id):
        booking_patch(
            actor=lab.actor,
            booking=fresh(mine),
            patch=patch,
            revision=seen.revision,
            now=NOW + 3 * MINUTE,
        )
    assert fresh(mine).name == "again"
