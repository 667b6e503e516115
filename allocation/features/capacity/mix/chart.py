"""The chart of a mix: hours sorted by the GPUs that they need, as areas of own, reserved and burst GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import numpy as np

from allocation.features.capacity.mix.arithmetic import BURST, KINDS, OWN, RESERVED, Mix, Prices
from allocation.features.capacity.mix.questions import ClassMix
from allocation.web.parts.burndown import Mark

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 52.0, 712.0, 28.0, 216.0
GRID_LINES = 4
POINTS = 330
PERCENT = 100
ROWS = (0, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
COLOURS = {OWN: "p-1", RESERVED: "p-3", BURST: "p-2"}
WORDS = {OWN: "own", RESERVED: "reserved", BURST: "burst"}


@dataclass(frozen=True, slots=True)
class Area:
    """The GPUs of a kind, hour by hour, as SVG points."""

    kind: str
    css: str
    points: str


@dataclass(frozen=True, slots=True)
class Even:
    """The line of a break-even: GPUs that are needed in more hours are cheaper of this kind than burst."""

    x: str
    text: str
    y: str


@dataclass(frozen=True, slots=True)
class MixChart:
    """The areas of a mix under the sorted hours, with lines of break-evens and of the own GPUs of now."""

    areas: tuple[Area, ...]
    evens: tuple[Even, ...]
    grid: tuple[Mark, ...]
    parts: tuple[Mark, ...]
    there: str
    rows: tuple[tuple[int, tuple[float, ...]], ...]
    text: str


def mix_chart(row: ClassMix, mix: Mix) -> MixChart:
    """The chart of a class with one of its mixes."""
    load = np.sort(row.load)[::-1]
    own, reserved = mix.gpus(OWN), mix.gpus(RESERVED)
    bounds = [np.zeros(len(load)), np.minimum(load, own), np.minimum(load, own + reserved), load]
    top = _round_up(max(float(row.peak), float(row.own), 1.0))
    areas = tuple(
        Area(kind, COLOURS[kind], _area(below, above, top))
        for kind, (below, above) in zip(KINDS, pairwise(bounds), strict=True)
    )
    shares = ", ".join(f"{part.share:.0f} % {WORDS[part.kind]}" for part in mix.parts)
    return MixChart(
        areas,
        tuple(_evens(row.prices)),
        _grid(top),
        tuple(
            Mark(_x(part / 100), HEIGHT - 26, f"{part} %", "end" if part == PERCENT else "middle")
            for part in (0, 25, 50, 75, PERCENT)
        ),
        f"{_y(row.own, top):.1f}",
        tuple((part, _at(bounds, part)) for part in ROWS) if len(load) else (),
        f"{row.gpu_hours:,.0f} GPU-hours, {row.peak:,.1f} GPUs at most; {shares}",
    )


def _at(bounds: Sequence[np.ndarray], percent: int) -> tuple[float, ...]:
    """The own, reserved and burst GPUs in the hour that so many percent of the hours exceed."""
    place = min(len(bounds[0]) - 1, len(bounds[0]) * percent // 100)
    return tuple(float(above[place] - below[place]) for below, above in pairwise(bounds))


def _x(part: float) -> float:
    return LEFT + (RIGHT - LEFT) * part


def _y(gpus: float, top: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * gpus / top


def _area(below: np.ndarray, above: np.ndarray, top: float) -> str:
    """The points of an area, in steps of at least an hour; empty without GPUs."""
    if not len(above) or not (above > below).any():
        return ""
    places = np.unique(np.linspace(0, len(above), min(POINTS, len(above)) + 1).astype(int))
    steps = list(pairwise(places))
    edge = [(x, above[first]) for first, last in steps for x in (first, last)]
    edge += [(x, below[first]) for first, last in reversed(steps) for x in (last, first)]
    return " ".join(f"{_x(x / len(above)):.1f},{_y(value, top):.1f}" for x, value in edge)


def _evens(prices: Prices) -> Iterator[Even]:
    for number, kind in enumerate((OWN, RESERVED)):
        even = prices.break_even(kind)
        if even is not None and even <= Decimal(100):
            y = f"{TOP - 16 + 11 * number:.1f}"
            yield Even(f"{_x(float(even) / 100):.1f}", f"{WORDS[kind]} pays from {even:.0f} %", y)


def _round_up(most: float) -> float:
    unit = 1.0
    while True:
        for step in (1, 2, 4, 6, 8):
            if unit * step >= most:
                return unit * step
        unit *= 10


def _grid(top: float) -> tuple[Mark, ...]:
    return tuple(
        Mark(LEFT - 6, _y(top * number / GRID_LINES, top), f"{top * number / GRID_LINES:,.4g}", "end")
        for number in range(GRID_LINES + 1)
    )
