"""How much a request asks of the database."""

from typing import Any

from django.db import connection

from tests.api.builders import Site, said

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
