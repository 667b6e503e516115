"""How much a request asks of the database."""

from typing import Any

from django.db import connection

from tests.api.builders import Site, said


def test_a_booking_takes_few_statements(site: Site) -> None:
    """Each is a way to the database and back, while others wait for the same budget."""
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:  # noqa: ANN401  as Django calls it
        seen.append(sql)
        return execute(sql, *rest)

    ask = {"project": "folding", "request": "1 h100 1h"}
    assert site.researcher.post("bookings", ask).status_code == 201
    with connection.execute_wrapper(note):
        made = site.researcher.post("bookings", ask, key="a key")
    assert made.status_code == 201, said(made)
    for x in seen: print(x[:130].replace("\n"," "))
    assert len(seen) <= 5, "\n".join(seen)
