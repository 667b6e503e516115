"""Work: how long it takes on each class, and what it costs there."""

from collections.abc import Mapping
from decimal import Decimal

from allocation.models import WorkSpeed
from allocation.rules.ask import LONGEST_SECONDS, AskDocument
from allocation.rules.catalogue import BY_CODE
from tenants.errors import Refused

Lengths = Mapping[str, int]
"""Seconds by class."""

MINUTE = 60


def lengths_of(ask: AskDocument) -> dict[str, int]:
    """Seconds that the ask's work takes on every class whose speed is known; empty for plain time.

    The ask says how long it takes on its first class. Whole minutes, rounded up.

    Raises:
        Refused: `no_speed`, when nobody has said how fast the first class is.
    """
    if ask.workload is None:
        return {}
    speeds = dict(
        WorkSpeed.objects.filter(workload=ask.workload).values_list("gpu_class_id", "thousandths")
    )
    first = ask.classes[0]
    if first not in speeds:
        raise _unknown(ask.workload, first)
    minutes = {
        name: -(-ask.duration * speeds[first] // (speed * MINUTE)) for name, speed in speeds.items()
    }
    found = {
        name: most * MINUTE for name, most in minutes.items() if most * MINUTE <= LONGEST_SECONDS
    }
    return found | {first: ask.duration}


def by_cost(ask: AskDocument, lengths: Lengths, hourly: Mapping[str, Decimal]) -> tuple[str, ...]:
    """The classes of `hourly` (the whole booking's price by class), the cheapest in all first;
    ties in the asker's order."""
    order = {name: place for place, name in enumerate(ask.classes)}
    return tuple(
        sorted(
            hourly, key=lambda name: (hourly[name] * lengths.get(name, ask.duration), order[name])
        )
    )


def is_by_cost(ask: AskDocument) -> bool:
    """Whether cost decides among its classes, and not the asker's order."""
    return len(ask.classes) > 1 and (ask.workload is not None or ask.deadline is not None)


def _unknown(workload: str, gpu_class: str) -> Refused:
    kinds = sorted(set(WorkSpeed.objects.values_list("workload", flat=True)))
    rule = BY_CODE["no_speed"]
    known = (
        f"Kinds of work it knows: {', '.join(kinds)}." if kinds else "It knows no kinds of work."
    )
    return Refused(
        "no_speed",
        f"The operator has not said how fast {workload} goes on {gpu_class}. {known} "
        "Leave the kind out to book plain time.",
        "invalid",
        "request",
        rule=rule.id,
        owner=rule.owner,
        numbers={"workload": workload, "gpu_class": gpu_class},
    )
