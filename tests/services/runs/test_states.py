"""The state machine as the database knows it."""

import pytest
from django.db import IntegrityError, connection, transaction

from allocation.models import Booking
from allocation.rules.states import TERMINAL, TRANSITIONS, State
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import Lab, a_booking
from tests.roles import as_system


def step(booking: Booking, new: State) -> bool:
    """Whether the database lets the booking into the state. It is put back afterwards."""
    with transaction.atomic():
        try:
            with transaction.atomic():
                Booking.objects.filter(id=booking.id).update(state=new)
        except IntegrityError as error:
            if "not approved as it is" in str(error) or "nobody has accepted" in str(error):
                # The table has the step; this booking lacks its approval, or its offer.
                return True
            if "can not go from" not in str(error):
                raise
            return False
        transaction.set_rollback(True)
        return True


@pytest.mark.parametrize("old", State)
def test_the_database_allows_exactly_the_steps_of_the_table(lab: Lab, old: State) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=old)
    with as_system():
        taken = {new for new in set(State) - {old} if step(booking, new)}
        assert taken == {new for was, new in TRANSITIONS if was == old}


def test_the_copy_in_the_database_is_the_table(lab: Lab) -> None:
    with as_system(), connection.cursor() as cursor:
        cursor.execute("SELECT old, new FROM allocation_transition")
        assert {(State(old), State(new)) for old, new in cursor.fetchall()} == TRANSITIONS


def test_nothing_leaves_a_terminal_state_and_everything_else_can_come_to_one() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in TERMINAL]
    ends = set(TERMINAL)
    for _ in State:
        ends |= {old for old, new in TRANSITIONS if new in ends}
    assert ends == set(State)


def test_every_state_is_reached_from_the_first() -> None:
    reached = {State.REQUESTED}
    for _ in State:
        reached |= {new for old, new in TRANSITIONS if old in reached}
    assert reached == set(State)


@pytest.mark.parametrize("state", sorted(set(State) - {State.REQUESTED}))
def test_the_web_can_not_put_a_booking_where_only_the_cycle_does(lab: Lab, state: State) -> None:
    like = a_booking(lab.project, lab.actor.user_id)
    like.id, like.number, like.state = lab.project.id, 77, state
    with (
        tenant_tx(lab.tenant_id),
        pytest.raises(IntegrityError, match="begins as requested"),
        transaction.atomic(),
    ):
        like.save(force_insert=True)
