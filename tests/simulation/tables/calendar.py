"""What the database's exclusion constraints and its guard of shares forbid in the calendar."""

from collections.abc import Iterable

from tests.simulation.tables.rows import WHOLE, Row


def is_excluded(row: Row, live: Iterable[Row]) -> bool:
    """Whether a row can't stand in the calendar with these."""
    meeting = [o for o in live if o.place.gpu == row.place.gpu and o.meets(row)]
    if any(row.collides(other) or _mode(row) != _mode(other) for other in meeting):
        return True
    if row.place.share is None:
        return False
    begins = {row.starts, *(other.starts for other in meeting if other.starts > row.starts)}
    return max(_taken(meeting, at) for at in begins) + row.place.share > WHOLE


def shared_at_most(rows: list[Row]) -> int:
    """The most thousandths that shares of one GPU take at any instant."""
    return max((_taken(rows, row.starts) for row in rows), default=0)


def _taken(rows: Iterable[Row], at: int) -> int:
    return sum(row.place.share or 0 for row in rows if row.starts <= at < row.ends)


def _mode(row: Row) -> str:
    if row.place.share is not None:
        return "shared"
    return "sliced" if row.place.profile else "whole"
