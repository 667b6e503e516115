"""Questions that are compiled once and asked at any time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models import Q, QuerySet
from django.test.utils import CaptureQueriesContext

from tenants.models import OutboxMessage
from tenants.platform.database.look import Look
from tests.builders import a_tenant
from tests.roles import as_system

pytestmark = pytest.mark.django_db

AT = datetime(2026, 11, 26, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
Rows = Callable[[datetime], QuerySet[OutboxMessage]]


def of(where: Callable[[datetime], Q]) -> Rows:
    return lambda now: OutboxMessage.objects.filter(where(now))


def test_a_look_answers_for_its_time_in_one_statement() -> None:
    look = Look(
        {
            "an hour old": of(lambda now: Q(created__lte=now - HOUR)),
            "of today": of(lambda now: Q(created__date=now.astimezone(UTC).date())),
            "50 % off": of(lambda _: Q(kind="50 % off")),
            "of another kind": of(lambda _: Q(kind__in=["a", "b"])),
        }
    )
    with as_system():
        OutboxMessage.objects.create(tenant=a_tenant(), kind="50 % off", created=AT, payload={})
        assert look(AT) == {"of today", "50 % off"}
        assert look(AT + HOUR) == {"an hour old", "of today", "50 % off"}
        with CaptureQueriesContext(connection) as asked:
            assert look(AT + 24 * HOUR) == {"an hour old", "50 % off"}
    assert len(asked) == 1


def test_a_question_with_a_time_of_its_own_is_no_question_of_a_look() -> None:
    with pytest.raises(ValueError, match="near its own"):
        Look({"old": of(lambda _: Q(created__lte=AT))})(AT)
