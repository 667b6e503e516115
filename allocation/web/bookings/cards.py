"""The headings and place cards of a booking's page. No database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocation.queries.bookings.bookings import NodePlace, Slots
from allocation.rules.states import State

WAITS_FOR_PLACE = (State.REQUESTED, State.QUEUED)
PLANNED = (*WAITS_FOR_PLACE, State.PAUSED)
HELD_UP = (State.PAUSING, State.PAUSED)
TURNED_DOWN = (State.REFUSED, State.EXPIRED)


@dataclass(frozen=True, slots=True)
class Titles:
    """The headings that depend on the state, and the text shown without a place."""

    why: str
    sooner: str
    place: str
    no_place: str
    time: str


@dataclass(frozen=True, slots=True)
class PlaceCard:
    """A node of the booking.

    `words` describes its drawing; `host_resources` names the requested host cores and memory, and
    is empty when none were requested.
    """

    place: NodePlace
    words: str
    beside: str


def titles_of(state: State) -> Titles:
    """Returns the headings for a booking in this state."""
    no_place = "It was never placed."
    if state == State.REQUESTED:
        no_place = "Being planned."
    elif state in PLANNED:
        no_place = "None yet."
    return Titles(
        why="Why it was refused" if state in TURNED_DOWN else "Why it is waiting",
        sooner="Earlier options" if state in WAITS_FOR_PLACE else "Alternatives",
        place="Planned GPUs" if state in PLANNED else "GPUs",
        no_place=no_place,
        time="Resumes" if state in HELD_UP else "When",
    )


def place_cards(places: Iterable[NodePlace], ask: Mapping[str, Any]) -> list[PlaceCard]:
    """Returns a card for each node; `ask` is the booking's request."""
    return [
        PlaceCard(
            place,
            f"On {place.name}: {'; '.join(_gpu_words(gpu) for gpu in place.gpus)}",
            _host_resources(ask.get("cores", 0), ask.get("memory", 0), place.limits),
        )
        for place in places
    ]


def where_words(places: Sequence[NodePlace]) -> str:
    """Returns `on n1, n2`, or nothing without a place."""
    return f"on {', '.join(place.name for place in places)}" if places else ""


def _gpu_words(gpu: Slots) -> str:
    return f"GPU {gpu.index}" if gpu.whole else f"GPU {gpu.index}, slice {gpu.profile}"


def _host_resources(cores: int, memory: int, limits: str) -> str:
    parts = [f"{cores} host cores"] * bool(cores) + [f"{memory} GiB of memory"] * bool(memory)
    return f"{' and '.join(parts)} per GPU: {limits}." if parts else ""
