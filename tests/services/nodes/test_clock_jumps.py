"""The portal's own clock jumps: nothing is ended or started by it until somebody has looked."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from allocation import tasks
from allocation.models import Booking, MachineClock
from allocation.services.bookings.creation import booking_request
from allocation.services.nodes.clock import JUMP, ClockReading, clock_accept, clock_in_doubt
from portal.web.clock import SETTLE_SECONDS, ClockDoubt
from tenants.platform.errors import Refused
from tests.builders import a_user, an_operator
from tests.builders_allocation import HOUR, Lab, a_booking_request, a_lab
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.turn

SECOND = timedelta(seconds=1)


class Machine:
    """Both clocks of one that runs cycles."""

    def __init__(self) -> None:
        self.wall, self.steady, self.boot = timezone.now(), 1000.0, "one"

    def read(self) -> ClockReading:
        return ClockReading(self.wall, self.steady, self.boot)

    def passes(self, span: timedelta) -> None:
        self.wall += span
        self.steady += span.total_seconds()

    def ticks(self) -> None:
        with as_system():
            tasks.allocation_tick()
            tasks.allocation_cycle()


@pytest.fixture
def machine(real_db: Servers) -> Iterator[Machine]:
    found = Machine()
    with as_system():
        # It has run for a while: how long a test takes to begin is no part of a jump.
        MachineClock.objects.create(machine=found.boot, clock_offset=found.read().clock_offset)
    with mock.patch.object(tasks, "clock_read", found.read):
        yield found


@pytest.fixture
def lab(machine: Machine) -> Lab:
    return a_lab("helix", gpus=2)


def booked(lab: Lab, now: datetime) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=now)


def state(booking: Booking) -> str:
    with as_system():
        return Booking.objects.get(id=booking.id).state


def shown() -> int:
    found: int = Client().get("/statusz").json()["clock_jump_seconds"]
    return found


@pytest.fixture
def starting(machine: Machine, lab: Lab) -> Booking:
    booking = booked(lab, machine.wall)
    machine.ticks()
    assert state(booking) == "starting"
    return booking


@pytest.mark.parametrize("hours", [2, -2])
def test_a_jump_ends_and_starts_nothing_and_is_told(
    machine: Machine, lab: Lab, starting: Booking, hours: int
) -> None:
    machine.wall += hours * HOUR
    other = booked(lab, machine.wall)
    for _ in range(2):
        machine.ticks()
        machine.passes(SECOND)
    assert (state(starting), state(other)) == ("starting", "requested")
    assert shown() == hours * 3600


def test_changes_of_members_are_refused_meanwhile(machine: Machine, starting: Booking) -> None:
    def change() -> tuple[int, str]:
        answer = Client().post("/api/v1/bookings", "{}", "application/json")
        return answer.status_code, answer.json()["code"]

    # Without a token it is refused either way; what counts is by what.
    assert change()[0] == 401
    machine.wall += HOUR
    machine.ticks()
    # A process that has just asked asks again after a moment.
    wait_until(lambda: change() == (503, "clock_in_doubt"), seconds=5)
    assert Client().get("/api/v1/bookings").status_code == 401
    page = Client().post("/invitations/nothing")
    assert (page.status_code, page["Retry-After"]) == (503, "30")
    part = Client().post("/t/helix/book", headers={"X-Fragment": "1"})
    assert (part.status_code, part["Content-Type"][:10]) == (503, "text/plain")
    machine.wall -= HOUR
    machine.ticks()
    wait_until(lambda: change()[0] == 401, seconds=5)


def test_a_jump_that_a_process_sees_itself_counts_until_a_solver_has_looked() -> None:
    now, steady = 1000.0, 5.0
    doubt = ClockDoubt(lambda: now, lambda: steady, lambda: False)
    assert not doubt()
    now += 600
    assert doubt()
    now, steady = now + SETTLE_SECONDS + 1, steady + SETTLE_SECONDS + 1
    assert not doubt()
    # Small steps of time synchronisation are none.
    now += 20
    assert not doubt()


def test_without_the_guard_a_jump_ends_what_runs(machine: Machine, starting: Booking) -> None:
    machine.wall += 2 * HOUR
    with mock.patch.object(tasks, "clock_in_doubt", return_value=False):
        machine.ticks()
    assert state(starting) == "ending"


@pytest.mark.long
def test_a_clock_that_is_put_right_again_is_trusted_by_itself(
    machine: Machine, lab: Lab, starting: Booking
) -> None:
    machine.wall += 2 * HOUR
    machine.ticks()
    machine.wall -= 2 * HOUR
    other = booked(lab, machine.wall)
    machine.ticks()
    assert (state(starting), state(other)) == ("starting", "starting")
    assert shown() == 0


def test_an_operator_may_say_that_it_is_right(machine: Machine, starting: Booking) -> None:
    machine.wall += 2 * HOUR
    machine.ticks()
    client = Client()
    client.force_login(an_operator("olga"))
    assert "clock jumped by 7200 s" in client.get("/ops/fleet").content.decode()
    assert client.post("/ops/clock").status_code == 302
    assert shown() == 0
    machine.passes(SECOND)
    machine.ticks()
    assert state(starting) == "ending"


@pytest.mark.long
def test_the_command_does_the_same_and_refuses_when_there_is_nothing_to_accept(
    machine: Machine, starting: Booking, capsys: pytest.CaptureFixture[str]
) -> None:
    olga = a_user("olga", is_staff=True)
    with as_system(), pytest.raises(CommandError, match="nothing to accept"):
        call_command("clock_accept", "--operator", "olga")
    machine.wall += 2 * HOUR
    machine.ticks()
    with as_system():
        call_command("clock_accept", "--operator", "olga")
        assert "jumped by 7200 s" in capsys.readouterr().out
        with pytest.raises(Refused):
            clock_accept(operator=olga, now=machine.wall)


@pytest.mark.long
def test_small_steps_and_slow_drift_are_no_jump(machine: Machine, starting: Booking) -> None:
    with as_system():
        for _ in range(20):
            machine.wall += JUMP - SECOND
            machine.passes(timedelta(minutes=1))
            assert not clock_in_doubt(machine.read())


def test_a_machine_that_starts_with_a_wrong_clock_is_measured_by_the_database(
    machine: Machine, starting: Booking
) -> None:
    machine.boot, machine.steady = "two", 5.0
    machine.wall += 2 * HOUR
    machine.ticks()
    assert state(starting) == "starting"
    machine.wall -= 2 * HOUR
    with as_system():
        assert not clock_in_doubt(machine.read())
        assert MachineClock.objects.filter(jump=None).count() == 2


def test_the_real_clocks_of_this_machine_are_read(real_db: Servers) -> None:
    one, other = tasks.clock_read(), tasks.clock_read()
    assert one.machine == other.machine != ""
    assert abs(one.clock_offset - other.clock_offset) < SECOND
