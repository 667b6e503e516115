"""What has been asked for lately, as a mix by class: the weights of the fragmentation measure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allocation.solver.types import Gpu, Held, Request

_PARTS = 64
"""Weights are rounded to parts of this, so that one booking more seldom means new tables."""


@dataclass(frozen=True, slots=True)
class Mix:
    """(profile or None for whole GPUs, GPUs or slices in one ask, weight), sorted."""

    lines: tuple[tuple[str | None, int, int], ...] = ()


EVEN = Mix()
"""Nothing known: every shape as likely as any other."""


def mixes_of(
    gpus: Iterable[Gpu], held: Iterable[Held], requests: Iterable[Request]
) -> dict[str, Mix]:
    """The mix of each class: bookings that wait and those that are held, one each."""
    classes = {gpu.id: gpu.gpu_class for gpu in gpus}
    asked: dict[str, Counter[tuple[str | None, int]]] = {}
    for request in requests:
        for gpu_class in request.ask.classes:
            line = (request.ask.profile, request.ask.count)
            asked.setdefault(gpu_class, Counter())[line] += 1
    for (booking_class, profile), count in _live(held, classes).items():
        asked.setdefault(booking_class[1], Counter())[profile, count] += 1
    return {name: _rounded(lines) for name, lines in asked.items()}


def _live(
    held: Iterable[Held], classes: Mapping[str, str]
) -> Counter[tuple[tuple[str, str], str | None]]:
    found: Counter[tuple[tuple[str, str], str | None]] = Counter()
    for row in held:
        gpu_class = classes.get(row.place.gpu)
        if gpu_class is not None:
            found[(row.booking, gpu_class), row.place.profile] += 1
    return found


def _rounded(lines: Counter[tuple[str | None, int]]) -> Mix:
    total = sum(lines.values())
    parts = ((line, -(-weight * _PARTS // total)) for line, weight in lines.items())
    rows = ((profile, count, part) for (profile, count), part in parts)
    return Mix(tuple(sorted(rows, key=lambda row: (row[0] or "", row[1], row[2]))))
