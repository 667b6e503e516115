"""The fields of an array in the booking panel, and its options with the price of all runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allocation.errors import AskError
from allocation.rules.arrays import MOST_ELEMENTS, MOST_PARALLEL, parallel_usual
from allocation.rules.ask import Parsed
from allocation.rules.ask.line.arrays import array_text
from allocation.web.bookings.request_panel.request_form import RequestFields
from allocation.web.parts.times import moment_words
from billing.rules import money_text
from solver import Runs
from tenants.platform.coded import coded
from tenants.platform.text import whole_number
from tenants.web.frame import zone_of
from tenants.web.parts import counted


@dataclass(frozen=True, slots=True)
class ArraySaid:
    """A number of runs, and how many of them are open at a time (None: as usual)."""

    count: int
    parallel: int | None = None

    @property
    def runs(self) -> Runs:
        """All runs, and how many are open at a time."""
        return Runs(self.count, min(self.parallel or parallel_usual(self.count), self.count))

    def text(self, one: str) -> str:
        """The line of one run as that of the array."""
        return array_text(one, self.count, self.parallel)


def array_said(parsed: Parsed) -> ArraySaid | None:
    """Returns the array of the text; None for a single booking."""
    return ArraySaid(parsed.array, parsed.parallel) if parsed.array is not None else None


def array_of_fields(fields: RequestFields) -> ArraySaid | None:
    """Returns the array of the fields; None for a single booking. Raises AskError."""
    if fields.array in ("", "1"):
        return None
    count = _number(fields.array, MOST_ELEMENTS, "array")
    parallel = _number(fields.parallel, MOST_PARALLEL, "parallel") if fields.parallel else None
    return ArraySaid(count, parallel)


def array_shown(array: ArraySaid | None) -> dict[str, Any]:
    """Returns the values of the fields."""
    if array is None:
        return {"array": "", "parallel": ""}
    return {"array": array.count, "parallel": array.parallel or ""}


def array_typed(fields: RequestFields) -> dict[str, Any]:
    """Returns the fields as typed, for invalid input."""
    return {"array": fields.array, "parallel": fields.parallel}


def array_options(
    options: Iterable[Mapping[str, Any]], array: ArraySaid, zone: str, now: datetime
) -> list[dict[str, Any]]:
    """Returns the options of the first run, priced for all runs, with the end of the last."""
    found = []
    for each in options:
        option = each["option"]
        total = money_text(option.price * array.count, option.currency)
        found.append(
            {
                **each,
                "when": f"First run: {each['when']}. Last run ends about "
                f"{moment_words(option.last_end, zone_of(zone), now)}",
                "price": total,
                "button": f"Book {counted(array.count, 'run')} for {total}",
                "value": f"{option.tier} {array.text(option.request)}",
            }
        )
    return found


def _number(text: str, most: int, param: str) -> int:
    number = whole_number(text) or 0
    if not 1 <= number <= most:
        raise AskError(f"bad_{param}", coded("array_number", most=f"{most:,}"), param)
    return number
