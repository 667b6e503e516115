"""A kept snapshot is brought up to date by what has changed, and is what a fresh one would be."""

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from allocation.models import Booking, Gpu, Node
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import MAX_NEW
from allocation.services.snapshot import changes, kept
from allocation.services.snapshot.changes import changes_read, horizon_read
from allocation.services.snapshot.kept import SnapshotKeeper
from allocation.services.snapshot.snapshot import snapshot_take
from solver import encode
from tenants.models import Quota, Tier
from tenants.platform.errors import Refused
from tests.builders import a_tier
from tests.builders_allocation import HOUR, NOW, PRICE, Lab, a_booking_request, a_lab, an_ask
from tests.prices import price_book_publish
from tests.roles import as_role, as_system
from tests.servers.servers import Servers
from tests.services.plant import Plant

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
CANCELLABLE = ("requested", "queued", "scheduled")


class Keeping:
    """A keeper that leads all the time, next to what is read afresh."""

    def __init__(self) -> None:
        self.keeper, self.term = SnapshotKeeper(), 0

    def check(self, now: datetime) -> None:
        """The kept snapshot has the bytes of a fresh one, without its own comparison."""
        self.term += 1
        with as_system():
            self.keeper.lead(self.term)
            found = self.keeper.take(now, MAX_NEW)
            assert encode(found.snapshot) == encode(snapshot_take(now, MAX_NEW))


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Keeping:
    """A keeper that never compares by itself."""
    monkeypatch.setattr(kept, "COMPARE_EVERY", timedelta(days=999))
    return Keeping()


@pytest.mark.parametrize("plant", [4], indirect=True)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_after_any_changes_it_is_what_a_fresh_one_is(
    plant: Plant, keeping: Keeping, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = mock.Mock(wraps=kept._fresh)
    monkeypatch.setattr(kept, "_fresh", fresh)
    dice = random.Random(seed)  # noqa: S311 (not for secrets)
    labs = [a_lab("helix", gpus=0, limit=3, money="9000"), a_lab("northlab", gpus=0, limit=3)]
    a_tier("spot", pausable=True, priority=10, grace_seconds=300)
    prices = {("h100", "standard"): PRICE, ("h100", "spot"): PRICE}
    with as_system():
        Tier.objects.update(protected_seconds=0)
        price_book_publish(actor_id=None, valid_from=NOW + MINUTE, prices=prices, now=NOW)
    plant.later(MINUTE)
    keeping.check(plant.now)
    for _ in range(10):
        for _ in range(dice.randint(0, 3)):
            happen(dice, labs, plant)
            keeping.check(plant.now)
        plant.later(timedelta(seconds=dice.choice((1, 4, 61, 600, 2_500, 7_200))))
        keeping.check(plant.now)
    with as_system():
        assert Booking.objects.exclude(planned_starts=None).count() > 2
    assert fresh.call_count == 2, "one for each keeper: all later ones are made from the changes"


def test_what_the_feed_misses_is_noticed_within_a_minute(
    plant: Plant, real_db: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: a write that no trigger sees. The fresh snapshot is used, and a keyframe is
    written; so it is after another process has led."""
    lab = a_lab("helix", gpus=0)
    noted = mock.Mock()
    monkeypatch.setattr(kept, "drift_note", noted)
    keeper = SnapshotKeeper()
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
        keeper.lead(1)
        keeper.take(NOW, MAX_NEW)
    with psycopg.connect(real_db.owner_dsn) as owner:
        owner.execute("ALTER TABLE allocation_booking DISABLE TRIGGER change_by_update")
        owner.execute("ALTER TABLE allocation_booking NO FORCE ROW LEVEL SECURITY")
        owner.execute("UPDATE allocation_booking SET duration_seconds = 777")
        owner.execute("ALTER TABLE allocation_booking ENABLE TRIGGER change_by_update")
        owner.execute("ALTER TABLE allocation_booking FORCE ROW LEVEL SECURITY")

    def length(term: int, seconds: int) -> tuple[int, bool]:
        with as_system():
            keeper.lead(term)
            taken = keeper.take(NOW + timedelta(seconds=seconds), MAX_NEW)
        (request,) = taken.snapshot.requests
        return request.duration, taken.has_drifted

    assert length(2, 10) == (booking.duration_seconds, False)
    assert length(3, 61) == (777, True)
    noted.assert_called_once_with(["requests"])
    assert length(4, 70) == (777, False)
    keeper._state = None
    assert length(6, 80) == (777, False)


def test_another_leader_a_changed_tier_and_too_many_changes_need_a_fresh_one(
    real_db: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_lab("helix")
    fresh = mock.Mock(wraps=kept._fresh)
    monkeypatch.setattr(kept, "_fresh", fresh)
    keeper = SnapshotKeeper()

    def taken(term: int) -> int:
        keeper.lead(term)
        keeper.take(NOW + timedelta(seconds=term), MAX_NEW)
        return int(fresh.call_count)

    with as_system():
        assert [taken(1), taken(2)] == [1, 1]
        assert taken(4) == 2, "another process has led"
        Tier.objects.update(grace_seconds=61)
        assert [taken(5), taken(6)] == [3, 3]
        monkeypatch.setattr(changes, "MOST", 0)
        Quota.objects.update(weight=2)
        Gpu.objects.update(index=5)
        assert taken(7) == 4
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM allocation_change")
            assert cursor.fetchone() == (0,), "what was read is dropped"


def test_the_web_role_cannot_read_the_feed_or_add_to_it(lab: Lab) -> None:
    for command in (
        "SELECT FROM allocation_change",
        "INSERT INTO allocation_change (kind) VALUES ('other')",
        "DELETE FROM allocation_change",
    ):
        for role in ("portal_web", "portal_ops"):
            with (
                as_role(role),
                pytest.raises(DatabaseError, match="permission denied"),
                transaction.atomic(),
                connection.cursor() as cursor,
            ):
                cursor.execute(command)


def happen(dice: random.Random, labs: list[Any], plant: Plant) -> None:
    """Something that people or operators do."""
    lab, now = dice.choice(labs), plant.now
    with as_system():
        open_ = list(Booking.objects.filter(state__in=CANCELLABLE).order_by("id"))
        mine = [each for each in open_ if each.tenant_id == lab.tenant_id]
        match dice.randrange(8):
            case 0 | 1 | 2 | 3:
                ask = an_ask(
                    dice.choice((1, 1, 2, 4)),
                    hours=dice.choice((0.2, 1, 3)),
                    starts=dice.choice((None, None, now + HOUR)),
                )
                tier = dice.choice(("standard", "spot"))
                asked = a_booking_request(lab.project, ask, tier=tier)
                with suppress(Refused):
                    booking_request(actor=lab.actor, request=asked, now=now)
            case 4 if mine:
                booking_cancel(actor=lab.actor, booking=dice.choice(mine), now=now)
            case 5:
                running = Booking.objects.filter(tenant_id=lab.tenant_id, state="active")
                for each in running.order_by("id")[:1]:
                    until = (each.planned_ends or now) + 2 * HOUR
                    with suppress(Refused):
                        booking_extend(actor=lab.actor, booking=each, until=until, now=now)
            case 6:
                gpu = dice.choice(list(Gpu.objects.order_by("id")))
                gpu.health = dice.choice((Gpu.Health.OK, Gpu.Health.OK, Gpu.Health.DRAINING))
                gpu.save()
            case _:
                Quota.objects.update(weight=dice.randint(1, 5))
                Node.objects.update(cores=dice.choice((8, 16)), memory_mb=64_000)


def test_of_writers_that_commit_in_any_order_none_is_lost(real_db: Servers) -> None:
    """By the newest transaction that was seen, the later commit of an older one would be lost."""
    lab = a_lab("helix", gpus=1)
    with as_system():
        bookings = [
            booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
            for _ in range(40)
        ]
    ids = [each.id for each in bookings]
    with as_system(), snapshot_of() as since, connection.cursor() as cursor:
        cursor.execute("SELECT max(xid)::text FROM allocation_change")
        newest = int(cursor.fetchone()[0])
    lost_by_newest = 0
    for round_ in range(10):
        mine = ids[round_ * 4 : round_ * 4 + 4]
        writers = [psycopg.connect(real_db.dsn("portal_system")) for _ in mine]
        for writer, booking in zip(writers, mine, strict=True):
            writer.execute("UPDATE allocation_booking SET version = version + 1 WHERE id = %s", [booking])
        seen: set[Any] = set()
        # The youngest transaction commits first, and is read before the older ones commit.
        for number in random.Random(round_).sample(range(4), 4):  # noqa: S311
            writers[number].commit()
            writers[number].close()
            with as_system(), snapshot_of() as horizon:
                found = changes_read(since)[1].bookings
                assert mine[number] in found
                with connection.cursor() as cursor:
                    cursor.execute("SELECT key FROM allocation_change WHERE xid > %s::xid8", [str(newest)])
                    seen |= {key for (key,) in cursor.fetchall()}
                    cursor.execute("SELECT max(xid)::text FROM allocation_change")
                    newest = int(cursor.fetchone()[0])
            since = horizon
        lost_by_newest += len(set(mine) - seen)
    assert lost_by_newest > 0, "the control loses none: the order of the commits proves nothing"


@contextmanager
def snapshot_of() -> Iterator[int]:
    """A transaction as the solver reads in; the horizon of its snapshot."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield horizon_read()
