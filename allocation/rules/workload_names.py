"""The workload of a booking: a short name for the kind of its work.

It is the label `workload` that people give, else the kind of work of its request, else what is left
of its name without the numbers at its end: `protein-fold-12` is `protein-fold`. Labels can change at
any time, so a workload is named later, too. PostgreSQL computes the same in the column `workload`. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

LABEL = "workload"
MOST = 63
_OTHER = re.compile(r"[^a-z0-9_]+")
# Numbers, versions and dates at the end tell runs apart and not kinds of work.
_NUMBERS = re.compile(r"(-v?[0-9]+)+$")


def workload_slug(text: str) -> str:
    """The name as addresses have it: `Protein fold` is `protein-fold`."""
    return _OTHER.sub("-", text.lower()).strip("-")[:MOST].strip("-")


def workload_named(name: str, labels: Mapping[str, str], ask: Mapping[str, Any]) -> str:
    """The workload of a booking; empty if nothing names it."""
    said = labels.get(LABEL) or ask.get("workload")
    if said:
        return workload_slug(str(said))
    found = _NUMBERS.sub("", workload_slug(name))
    return "" if found.isdigit() else found


class Named(Protocol):
    """What names the workload of a booking."""

    name: Any
    labels: Any
    ask: Any


def workload_of(booking: Named) -> str:
    """The workload of a booking; empty if nothing names it."""
    return workload_named(booking.name, booking.labels, booking.ask)
