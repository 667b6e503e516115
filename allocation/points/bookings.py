"""Points at which features take part in the life of bookings, and in the turns that decide them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import wire
from allocation.points import BookingCard
from solver.model.inputs import Entry
from tenants.platform.database.look import Question
from tenants.platform.errors import Refused

Windows: TypeAlias = tuple[tuple[datetime, datetime], ...]
"""[from, until) in which all of a booking's time must be."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What new bookings wait for if their windows are full: those that can't wait as they ask to are
    `refused`; `write(bookings)` stores it for those that are written, in the same transaction."""

    refused: Mapping[UUID, Refused]
    write: Callable[[Collection[UUID]], None]


NewWaits: TypeAlias = Callable[[Any, Mapping[UUID, Any], Mapping[UUID, Windows], datetime], Waits]

NEW_WAITS: list[NewWaits] = []
"""Each returns what new bookings of an actor wait for, by their windows. It writes nothing."""


OnlyOne: TypeAlias = Callable[[Any, Sequence[Any], datetime], None]

ONLY_ONE: list[OnlyOne] = []
"""Each makes bookings that an actor has just made exclude each other: only one is wanted."""


def only_one(actor: Any, bookings: Sequence[Any], now: datetime) -> None:  # noqa: ANN401 (an Actor)
    """Makes new bookings exclude each other. Raises Refused."""
    for exclude in ONLY_ONE:
        exclude(actor, bookings, now)


CHANGES_BY_STATE: dict[str, Callable[[Any, str], Any]] = {}
"""By state of a booking, what changes it then: it gets the writer of the change and the text of the
request, and returns the booking."""


NewScript: TypeAlias = Callable[[Any, str], object]

NEW_SCRIPTS: list[NewScript] = []
"""Each gives a new booking the script that comes with it."""


def script_keep(booking: Any, text: str | None) -> None:  # noqa: ANN401 (a Booking)
    """Gives a new booking its script, if it has one. Raises Refused."""
    if text is not None:
        for keep in NEW_SCRIPTS:
            keep(booking, text)


NodeScripts: TypeAlias = Callable[[Collection[UUID]], Mapping[UUID, tuple[wire.DesiredScript, ...]]]

NODE_SCRIPTS: list[NodeScripts] = []
"""Each returns the scripts of nodes, by node. What it returns for a node changes only with the generation
of the node."""


def scripts_ordered(nodes: Collection[UUID]) -> dict[UUID, tuple[wire.DesiredScript, ...]]:
    """Returns the scripts that stand in the documents of nodes."""
    return {node: found for read in NODE_SCRIPTS if nodes for node, found in read(nodes).items()}


BeforeEnd: TypeAlias = Callable[[Any, datetime], None]

BEFORE_CANCEL: list[BeforeEnd] = []
"""Each withdraws what a locked booking has that is about to be cancelled before its start."""


def before_cancel(booking: Any, now: datetime) -> None:  # noqa: ANN401 (a Booking)
    """Lets the features withdraw what a booking has that is about to be cancelled."""
    for withdraw in BEFORE_CANCEL:
        withdraw(booking, now)


@dataclass(frozen=True, slots=True)
class TurnStep:
    """What a feature does in a turn before its snapshot, if there are `rows`. `run` returns how many
    bookings ended. `makes_due`: the rows alone give a turn something to do."""

    rows: Question
    run: Callable[[datetime], int]
    makes_due: bool = True


TURN_STEPS: dict[str, TurnStep] = {}
"""The steps of features that end what is over, by their names and in their order."""

TURN_PREPARES: dict[str, TurnStep] = {}
"""The steps of features that bring bookings up to date after that. What they return is not counted."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Bookings that wait for an offer, as the solver gets them, and rows of which there are some if
    there may be such bookings."""

    rows: Question
    read: Callable[[datetime], tuple[Entry, ...]]


ENTRIES: dict[str, Entries] = {}
"""What waits for an offer, by the names of features."""


PlanWritten: TypeAlias = Callable[[Any, Any, Any, datetime], None]

PLAN_WRITTEN: list[PlanWritten] = []
"""Each carries out its part of a plan that is written, by plan, snapshot and decision, in transactions
of its own."""


HoursWaitedFor: TypeAlias = Callable[[Any, datetime, datetime], Mapping[str, tuple[Any, ...]]]

HOURS_WAITED_FOR: list[HoursWaitedFor] = []
"""Each returns for which hours of a time how many bookings of an actor's tenant wait, by class."""


def hours_waited_for(actor: Any, starts: datetime, ends: datetime) -> dict[str, tuple[Any, ...]]:  # noqa: ANN401
    """Returns for which hours of a time how many bookings of a tenant wait, by class."""
    return {name: rows for read in HOURS_WAITED_FOR for name, rows in read(actor, starts, ends).items()}


HomeCards: TypeAlias = Callable[[Any, datetime], BookingCard | None]

HOME_CARDS: list[HomeCards] = []
"""Each returns a card above everything on the start page of an actor, if there is one."""


def home_cards(actor: Any, now: datetime) -> Iterable[BookingCard]:  # noqa: ANN401 (an Actor)
    """Returns the cards above everything on the start page."""
    return [card for read in HOME_CARDS if (card := read(actor, now)) is not None]
