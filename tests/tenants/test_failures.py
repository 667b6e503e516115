"""Entries of queues, each handled apart: what fails is kept, tried again, and stops no other."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import DatabaseError, InterfaceError, connection, transaction
from redis.exceptions import ConnectionError as RedisLost

from tenants.failures import FailureLog, TaskFailures, each_apart, failed_count, steps_apart
from tenants.models import FailedMessage, Tenant
from tests.builders import a_tenant
from tests.roles import as_system

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 28, 10, tzinfo=UTC)


def raising(error: Exception) -> Callable[..., int]:
    def act(*_: object) -> int:
        raise error

    return act


def bad_statement() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


def minutes(count: int) -> datetime:
    return NOW + timedelta(minutes=count)


@pytest.mark.parametrize("act", [raising(KeyError("project")), bad_statement])
def test_a_failure_is_kept_tried_five_times_and_parked(act: Callable[..., object]) -> None:
    tenant = a_tenant()
    with as_system():
        for at, held in ((0, 1), (1, 2), (3, 4), (7, 8)):
            log = FailureLog("post", minutes(at))
            assert not log.handle(7, act, tenant_id=tenant.id)
            assert log.holds_back(7)
            assert log.held_back() == ["7"]
            row = FailedMessage.objects.get()
            assert row.next_try == minutes(at + held)
        assert not FailureLog("post", minutes(14)).handle(7, raising(AssertionError("early")))
        FailureLog("post", minutes(15)).handle(7, act)
        row = FailedMessage.objects.get()
        assert (row.tries, row.next_try, row.first_failed) == (5, None, NOW)
        assert (row.tenant_id, row.queue, row.key) == (tenant.id, "post", "7")
        assert row.error.startswith(("KeyError: 'project'", "DataError: division by zero"))
        assert FailureLog("post", minutes(10_000)).holds_back(7)
        # An entry of the same name in another queue is another one.
        assert FailureLog("parcels", minutes(1)).handle(7, lambda: None)
    assert failed_count() == 1


def test_an_entry_that_was_handled_has_not_failed_any_more() -> None:
    with as_system():
        FailureLog("post", NOW).handle(7, raising(ValueError("x")))
        assert FailureLog("post", minutes(1)).handle(7, lambda: None)
    assert failed_count() == 0


def test_a_lost_server_is_no_fault_of_an_entry() -> None:
    with as_system():
        for error in (InterfaceError("closed"), RedisLost("gone")):
            with pytest.raises(type(error)):
                FailureLog("post", NOW).handle(7, raising(error))
        with pytest.raises(OSError, match="mail"):
            FailureLog("post", NOW, raised=(OSError,)).handle(7, raising(OSError("mail")))
    assert failed_count() == 0


def test_the_time_limit_of_a_task_ends_it_and_holds_the_entry_back() -> None:
    with as_system():
        with pytest.raises(SoftTimeLimitExceeded):
            FailureLog("post", NOW).handle(7, raising(SoftTimeLimitExceeded()))
        assert FailureLog("post", NOW).holds_back(7)


def test_a_row_or_a_step_that_fails_stops_no_other() -> None:
    first, second, third = (a_tenant() for _ in range(3))
    seen: list[str] = []

    def act(tenant: Tenant) -> int:
        seen.append(tenant.slug)
        if tenant == second:
            raise DatabaseError("no")
        return 2

    with as_system():
        assert each_apart("tenants", [first, second, third], act, NOW) == 4
        steps_apart("sweep", NOW, raising_step, lambda now: seen.append(f"{now:%H}"))
        assert set(FailedMessage.objects.values_list("queue", "key")) == {
            ("tenants", str(second.id)),
            ("tasks", "sweep: raising_step"),
        }
    assert seen == [first.slug, second.slug, third.slug, "10"]


def raising_step(now: datetime) -> None:
    raise RuntimeError(now)


def test_what_comes_back_by_itself_is_not_given_up_for_ever() -> None:
    tenant, seen = a_tenant(), list[Tenant]()

    def act(row: Tenant) -> int:
        seen.append(row)
        raise DatabaseError("no")

    with as_system():
        each_apart("documents", [tenant], act, NOW)
        FailedMessage.objects.update(next_try=None, dismissed=minutes(1))
        each_apart("documents", [tenant], act, minutes(60))
        assert (len(seen), failed_count()) == (1, 0)
        each_apart("documents", [tenant], act, minutes(61))
        # It fails still, so that operators see it again.
        assert (len(seen), failed_count()) == (2, 1)
        FailedMessage.objects.update(next_try=None, dismissed=minutes(62))
        assert each_apart("documents", [tenant], lambda _: 1, minutes(122)) == 1
        assert not FailedMessage.objects.exists()


def test_what_was_sent_once_stays_given_up() -> None:
    with as_system():
        FailureLog("post", NOW).handle(7, raising(ValueError("x")))
        FailedMessage.objects.update(next_try=None, dismissed=NOW)
        assert FailureLog("post", minutes(10_000)).holds_back(7)


def test_a_task_that_fails_is_shown_until_it_succeeds() -> None:
    at = [0.0]
    here, elsewhere = (TaskFailures(lambda: at[0]) for _ in range(2))

    def run(where: TaskFailures, error: Exception | None = None) -> None:
        with where.noted("limits", lambda: NOW):
            if error is not None:
                raise error

    with as_system():
        run(elsewhere)
        for tries in (1, 2):
            with pytest.raises(KeyError):
                run(here, KeyError("x"))
            row = FailedMessage.objects.get()
            assert (row.queue, row.key, row.error, row.tries) == ("tasks", "limits", "KeyError: 'x'", tries)
        # Another process asks once a minute, this one at once.
        run(elsewhere)
        assert failed_count() == 1
        at[0] = 60.0
        run(elsewhere)
        assert failed_count() == 0
        with pytest.raises(KeyError):
            run(here, KeyError("x"))
        run(here)
        assert failed_count() == 0
        for error in (InterfaceError("closed"), RedisLost("gone")):
            with pytest.raises(type(error)):
                run(here, error)
        assert failed_count() == 0
