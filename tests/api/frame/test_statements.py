"""How much a request asks of the database."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.renderers import JSONRenderer

from allocation.api.bookings.shapes import AllocationOut, ParentOut, PauseOut
from allocation.models import Booking, Gpu
from tests.api.bookings.test_pauses import pausing
from tests.api.builders import Site, said
from tests.builders_allocation import an_allocation
from tests.roles import as_system
from tests.web.bookings.test_planned_starts import overtaken

ASK = {"count": 1, "classes": ["h100"], "duration": 3600}
# What opens and ends a transaction, and says whose it is.
FRAME = ("SAVEPOINT", "RELEASE", "SELECT set_config", "SELECT current_setting")


def test_a_booking_takes_few_statements(site: Site) -> None:
    """Others wait for the same budget from the hold on, which is sent with the commit."""
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:  # noqa: ANN401  as Django calls it
        seen.append(sql)
        return execute(sql, *rest)

    body = {"project": "folding", "ask": ASK}
    # Reference data is in memory from then on; the first one makes the account `spend`.
    for _ in range(2):
        assert site.researcher.post("bookings", body).status_code == 201
    with connection.execute_wrapper(note):
        made = site.researcher.post("bookings", body, idempotency_key="a key")
    assert made.status_code == 201, said(made)
    asked = [sql for sql in seen if not sql.startswith(FRAME)]
    # A web process has taken the number before; here all is one transaction.
    assert len(asked) <= 10, "\n".join(asked)
    assert 'INTO "billing_transfer"' in asked[-1]


# The statements for the parts of each booking, besides those of its parents' estimates.
PARTS = {"": 3, "plain": 1, "changed": 2, "later": 2, "placed": 2, "child": 4, "element": 1}


def test_a_booking_is_read_with_what_other_tables_have_of_it_and_with_nothing_else(
    site: Site,
) -> None:
    """Statements are counted, because a page or a program reads a booking after each change."""
    rows = _bookings_of_each_kind(site)
    found = {each["number"]: each for each in said(site.researcher.get("bookings"))["items"]}
    assert len(found) == len(rows)
    for row in rows:
        for reference in (row.label, f"bk_{row.id.hex}"):
            data, statements = _read(site, reference)
            assert data == found[row.label], row.name
            # The token, the tenant, and the booking itself come before its parts.
            assert statements <= 3 + PARTS[row.name], row.name
        with as_system():
            assert {part: data[part] for part in ("allocations", "pauses", "depends_on")} == {
                "allocations": _json(AllocationOut(row.allocations.all(), many=True).data),
                "pauses": _json(PauseOut(row.pauses.all(), many=True).data),
                "depends_on": _json(ParentOut(row.dependencies.all(), many=True).data),
            }
        assert (data["change"] is not None) == (row.name == "changed"), row.name
        start = data["planned_start"]
        assert (start is not None and start["moved_by"] is not None) == (row.name == "later")
        counts = {part: len(data[part]) for part in ("allocations", "pauses", "depends_on")}
        assert counts == {
            "allocations": int(row.name in ("", "placed")),
            "pauses": int(row.name == ""),
            "depends_on": int(row.name == "child"),
        }
    assert found["BK-4"]["planned_start"]["moved_by"]["booking"] == "BK-2"


def _bookings_of_each_kind(site: Site) -> Sequence[Booking]:
    pausing(site)
    made = {}
    for name in ("plain", "changed", "later", "placed", "child", "element"):
        body: dict[str, Any] = {"project": "folding", "ask": ASK, "name": name}
        body |= {"depends_on": [{"booking": "BK-2"}]} if name == "child" else {}
        body |= {"array": 2} if name == "element" else {}
        answer = site.researcher.post("bookings", body)
        assert answer.status_code == 201, said(answer)
        made[name] = said(answer)["id"]
    starts = timezone.now() + timedelta(hours=1)
    with as_system():
        Booking.objects.filter(name__in=["changed", "later"]).update(
            state="queued", planned_starts=starts, planned_ends=starts + timedelta(hours=1)
        )
        rows = list(Booking.objects.filter(tenant=site.tenant).order_by("number"))
        gpu = Gpu.objects.all()[0]
    by_name = {row.name: row for row in rows}
    overtaken(by_name["later"], by_name["plain"])
    an_allocation(by_name["placed"], gpu, starts=starts)
    to, match = {"request": "2 h100 2h"}, {"if_match": "*"}
    path = f"bookings/{made['changed']}"
    assert site.researcher.send("PATCH", path, to, headers=match).status_code == 202
    return rows


def _json(data: object) -> Any:  # noqa: ANN401
    return json.loads(JSONRenderer().render(data))


def _read(site: Site, reference: str) -> tuple[Any, int]:
    """The booking, and the number of statements without those that open and end transactions."""
    with CaptureQueriesContext(connection) as asked:
        answer = site.researcher.get(f"bookings/{reference}")
    frame = ("SAVEPOINT", "RELEASE", "SELECT current_setting", "SELECT set_config('portal.tenant'")
    return said(answer), sum(not each["sql"].startswith(frame) for each in asked)
