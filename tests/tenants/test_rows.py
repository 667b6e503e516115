"""Rows that are written together with later statements of their transaction."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError, connection, transaction
from django.db.models import Model
from psycopg.adapt import PyFormat, Transformer
from psycopg.types.array import ListDumper
from psycopg.types.json import Jsonb

from tenants.models import AuditEntry, OutboxMessage, Tenant
from tenants.platform.database.base import QuickListDumper
from tenants.platform.rows import (
    last_rows_allowed,
    rows_insert,
    rows_write,
    statement_later,
    statements_send,
    with_last_rows,
)
from tests.builders import a_tenant
from tests.roles import as_system

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
pytestmark = pytest.mark.django_db


def a_message(tenant: Tenant, kind: str = "a.kind", **payload: object) -> OutboxMessage:
    return OutboxMessage(tenant=tenant, kind=kind, payload=payload, created=NOW)


def an_entry(tenant: Tenant | None, action: str) -> AuditEntry:
    return AuditEntry(
        tenant=tenant, at=NOW, action=action, object_kind="x", object_id="1", detail={"a": [1, "ä"]}
    )


def stored(model: type[Model], count: int) -> list[Any]:
    """The last rows as the database has them, without their keys."""
    with connection.cursor() as cursor:
        table = model._meta.db_table
        cursor.execute(f"SELECT to_jsonb(t) - 'id' FROM {table} t ORDER BY id DESC LIMIT {count}")  # noqa: S608
        return [row for (row,) in cursor.fetchall()]


@pytest.mark.parametrize("count", [1, 3])
def test_rows_are_those_that_django_would_write(count: int) -> None:
    with as_system():
        tenant = a_tenant()
        written: Sequence[tuple[Any, Sequence[Model]]] = (
            (OutboxMessage, [a_message(tenant, f"k{n}", n=n, text="ü") for n in range(count)]),
            (AuditEntry, [an_entry(tenant if n else None, f"act{n}") for n in range(count)]),
        )
        for model, rows in written:
            model.objects.bulk_create(rows)
            expected, known = stored(model, count), model.objects.count()
            for write in (rows_write, rows_insert):
                for row in rows:
                    row.pk = None
                write(rows)
                assert stored(model, count) == expected
            assert model.objects.count() == known + 2 * count
            assert [row.pk for row in rows][::-1] == list(
                model.objects.order_by("-pk").values_list("pk", flat=True)[:count]
            )


@pytest.mark.parametrize("count", [1, 2])
def test_a_text_that_is_too_long_is_refused_and_not_cut(count: int) -> None:
    with as_system():
        tenant = a_tenant()
        with pytest.raises(DataError), transaction.atomic():
            rows_write([a_message(tenant, "k" * 61) for _ in range(count)])


def test_statements_are_sent_in_order_and_the_last_ones_at_the_end() -> None:
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:  # noqa: ANN401  as Django calls it
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        with transaction.atomic():
            statement_later("SELECT 'last'", [], is_last=True)
            statement_later("SELECT 'first'", [])
            assert seen[1:] == []
            with connection.cursor() as cursor:
                cursor.execute("SELECT 'asked'")
                assert cursor.fetchall() == [("asked",)]
            assert seen[1:] == ["SELECT 'first'", "SELECT 'asked'"]
            statement_later("SELECT 'second'", [])
        # The transaction continues after its savepoint, so the last one waits on.
        assert seen[3] == "SELECT 'second'"
        assert "SELECT 'last'" not in seen
        statements_send()
    assert seen[-1] == "SELECT 'last'"


def test_a_cursor_of_the_server_reads_what_was_kept_before_it() -> None:
    with as_system():
        tenant = a_tenant()
        rows_write([a_message(tenant, "kept")])
        found = OutboxMessage.objects.filter(tenant=tenant).iterator(chunk_size=1)
        assert [each.kind for each in found] == ["kept"]


def test_nothing_of_a_transaction_that_is_undone_is_sent_and_all_before_it_is() -> None:
    with as_system():
        tenant = a_tenant()
        OutboxMessage.objects.all().delete()
        rows_write([a_message(tenant, "before")], is_last=True)
        with transaction.atomic():
            rows_write([a_message(tenant, "undone")], is_last=True)
            rows_write([a_message(tenant, "undone, too")])
            transaction.set_rollback(True)
        rows_write([a_message(tenant, "after")])
        kinds = OutboxMessage.objects.order_by("id").values_list("kind", flat=True)
        assert list(kinds) == ["before", "after"]


def test_work_whose_last_rows_are_refused_runs_again_with_each_in_its_turn() -> None:
    tries: list[bool] = []

    def work() -> str:
        with as_system(), transaction.atomic():
            tenant = a_tenant(f"t{len(tries)}")
            tries.append(last_rows_allowed())
            message = a_message(tenant)
            if not last_rows_allowed():
                return "examined"
            message.kind = None  # type: ignore[assignment]  # what the table refuses
            rows_write([message], is_last=True)
            # As the end of a tenant's transaction does.
            statements_send()
            return "never seen"

    assert with_last_rows(work) == "examined"
    assert tries == [True, False]
    assert not last_rows_allowed()


def test_a_connection_whose_transaction_has_failed_is_not_usable() -> None:
    assert connection.is_usable()
    with transaction.atomic():
        with pytest.raises(DataError), connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")
        assert not connection.is_usable()
        transaction.set_rollback(True)
    assert connection.is_usable()


def test_a_list_is_sent_as_psycopg_would_send_it() -> None:
    texts = ["", " ", "null", "NULL", "a,b", "{}", '"', "\\", '\\"', 'ä "x\\y" ☃', "plain", None]
    lists: list[list[Any]] = [
        texts,
        [Jsonb({"text": text, "list": [text]}) for text in texts],
        [[text] for text in texts],
        [uuid4(), None],
        [Decimal("1.50")],
    ]
    transformer = Transformer()
    for values in lists:
        ours, theirs = (
            dumper(list, transformer).upgrade(values, PyFormat.TEXT).dump(values)
            for dumper in (QuickListDumper, ListDumper)
        )
        assert ours == theirs
    with connection.cursor():
        in_use = connection.connection.adapters.get_dumper(list, PyFormat.AUTO)
    assert in_use is QuickListDumper
