"""What has been asked for lately, as a mix by class: the weights of the fragmentation measure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from allocation.solver.model.inputs import Gpu, Held, Request, Shape

_PARTS = 1_024
"""Weights are parts of this."""
_BITS = 4
"""Weights are rounded to so many leading bits: one booking more seldom means new tables."""


DemandKind = tuple[Shape, int, int]


@dataclass(frozen=True, slots=True)
class Mix:
    """(shape, how many of it in one ask, host cores of the ask in thousandths, weight), sorted.

    `total` is the weight of all asks that take this class or one that can stand for it; 0: only
    these.
    """

    lines: tuple[tuple[Shape, int, int, int], ...] = ()
    total: int = 0


EVEN_MIX = Mix()
"""Nothing known: every shape as likely as any other."""


def mixes_of(
    gpus: Iterable[Gpu], held: Iterable[Held], requests: Iterable[Request]
) -> dict[str, Mix]:
    """The mix of each class: bookings that wait and those that are held, one each."""
    classes = {gpu.id: gpu.gpu_class for gpu in gpus}
    asked: defaultdict[str, Counter[DemandKind]] = defaultdict(Counter)
    asks: Counter[tuple[frozenset[str], bool]] = Counter()
    for (names, is_any, line), weight in Counter(map(_asked, requests)).items():
        for gpu_class in names:
            asked[gpu_class][line] += weight
        asks[frozenset(names), is_any] += weight
    for (gpu_class, line), weight in Counter(_live(held, classes)).items():
        asked[gpu_class][line] += weight
        asks[frozenset([gpu_class]), False] += weight
    markets = _markets(names for names, is_any in asks if is_any)
    return {name: _mix(lines, _total(asks, markets.get(name))) for name, lines in asked.items()}


def _asked(request: Request) -> tuple[tuple[str, ...], bool, DemandKind]:
    ask = request.ask
    return ask.classes, ask.any_class, (ask.shape, ask.count, ask.count * ask.cores)


def _markets(asks: Iterable[frozenset[str]]) -> dict[str, frozenset[str]]:
    """By class the classes that stand for each other, directly or through a third."""
    found: dict[str, frozenset[str]] = {}
    for names in asks:
        market = names.union(*(found.get(name, frozenset()) for name in names))
        found |= dict.fromkeys(market, market)
    return found


def _total(asks: Counter[tuple[frozenset[str], bool]], market: frozenset[str] | None) -> int:
    """How many asks there are for the market; 0: the class is its own."""
    if market is None:
        return 0
    return sum(weight for (names, _), weight in asks.items() if names & market)


def _live(held: Iterable[Held], classes: Mapping[str, str]) -> Iterator[tuple[str, DemandKind]]:
    """Class and line of each booking that has something of the class."""
    found: dict[tuple[str, str, Shape], tuple[int, int]] = {}
    for row in held:
        gpu_class = classes.get(row.place.gpu)
        if gpu_class is not None:
            key = (row.booking, gpu_class, row.place.shape)
            count, cores = found.get(key, (0, 0))
            found[key] = (count + 1, cores + row.cores)
    for (_, gpu_class, shape), (count, cores) in found.items():
        yield gpu_class, (shape, count, cores)


def _mix(lines: Counter[DemandKind], of_all: int) -> Mix:
    total = of_all or sum(lines.values())
    rows = ((*line, _rounded(-(-weight * _PARTS // total))) for line, weight in lines.items())
    ordered = sorted(rows, key=lambda row: (str(row[0] or ""), *row[1:]))
    return Mix(tuple(ordered), _PARTS if of_all else 0)


def _rounded(part: int) -> int:
    step = 1 << max(0, part.bit_length() - _BITS)
    return (part + step // 2) // step * step
