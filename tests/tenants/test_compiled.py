"""Queries that are compiled once and run with other times and keys."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from tenants.models import Membership, OutboxMessage
from tenants.platform.database.compiled import ANY_NUMBER, ANY_TENANT, Compiled
from tests.builders import a_tenant
from tests.roles import as_system

pytestmark = pytest.mark.django_db

AT = datetime(2026, 11, 26, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_compiled_query_gives_what_the_query_itself_gives() -> None:
    def rows(now: datetime, keys: Sequence[int]) -> QuerySet[OutboxMessage]:
        asked = OutboxMessage.objects.filter(id__in=keys, created__lte=now - HOUR)
        return asked.exclude(kind="50 % off").select_related("tenant").order_by("-id")

    compiled = Compiled(rows, keys="bigint")
    with as_system():
        tenant = a_tenant()
        made = [
            OutboxMessage.objects.create(tenant=tenant, kind=kind, created=AT + late, payload={})
            for kind in ("booking.ended", "50 % off", "booking.started")
            for late in (-HOUR, timedelta())
        ]
        ids = [each.id for each in made[1:]]
        for now in (AT, AT + HOUR, AT - HOUR):
            assert compiled(now, ids) == list(rows(now, ids))
        others = [each.id for each in made[1:] if each.kind != "50 % off"]
        assert [each.id for each in compiled(AT + HOUR, ids)] == others[::-1]
        with CaptureQueriesContext(connection) as asked:
            assert [each.tenant for each in compiled(AT, ids)] == [tenant]
            assert compiled(AT, []) == []
        assert len(asked) == 2
        assert len({each["sql"].count("%s") for each in asked}) == 1


def test_a_compiled_query_gives_columns_too() -> None:
    of_tenants = Compiled(
        lambda _, keys: OutboxMessage.objects.filter(tenant__in=keys).values_list("kind", "tenant")
    )
    with as_system():
        mine, other = a_tenant("mine"), a_tenant("other")
        for tenant in (mine, other):
            OutboxMessage.objects.create(tenant=tenant, kind=tenant.slug, created=AT, payload={})
        assert of_tenants(AT, {mine.id}) == [("mine", mine.id)]
        assert sorted(of_tenants(AT, {mine.id, other.id})) == [
            ("mine", mine.id),
            ("other", other.id),
        ]


def test_a_compiled_query_refuses_what_it_would_not_replace() -> None:
    old = Compiled(lambda _now, _keys: OutboxMessage.objects.filter(created__lte=AT))
    with pytest.raises(ValueError, match="near its own"):
        old(AT)
    one = Compiled(lambda _, keys: Membership.objects.filter(tenant=keys[0]))
    with pytest.raises(ValueError, match="with IN only"):
        one(AT, [a_tenant().id])


def test_a_compiled_query_takes_the_date_of_its_time() -> None:
    def of_day(now: datetime, _keys: Sequence[int]) -> QuerySet[OutboxMessage]:
        return OutboxMessage.objects.filter(created__date=now.date())

    compiled = Compiled(of_day)
    with as_system():
        tenant = a_tenant()
        OutboxMessage.objects.create(tenant=tenant, kind="any", created=AT, payload={})
        found = {now: len(compiled(now)) for now in (AT - HOUR, AT, AT + 30 * HOUR)}
        assert found == {now: of_day(now, ()).count() for now in found}
    assert [*found.values()] == [0, 1, 0]


def test_a_compiled_query_takes_values() -> None:
    def rows(tenant: UUID, number: int) -> QuerySet[OutboxMessage]:
        return OutboxMessage.objects.filter(tenant=tenant, id=number, kind="7")

    compiled = Compiled(lambda *_: rows(ANY_TENANT, ANY_NUMBER))
    with as_system():
        tenants = [a_tenant("mine"), a_tenant("other")]
        made = [
            OutboxMessage.objects.create(tenant=tenant, kind="7", created=AT, payload={})
            for tenant in tenants
        ]
        for tenant in tenants:
            for each in made:
                found = compiled(AT, values={ANY_TENANT: tenant.id, ANY_NUMBER: each.id})
                assert found == list(rows(tenant.id, each.id))
        with pytest.raises(KeyError):
            compiled(AT, values={ANY_TENANT: tenant.id})
