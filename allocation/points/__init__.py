"""Points of the core to which features add themselves. The core calls them and knows no feature."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import wire
from wire.exposition import Metric


@dataclass(frozen=True, slots=True)
class Deputy:
    """Somebody who decides requests in an approver's place: of one project, or of all."""

    approver: int
    person: int
    project: UUID | None

    def is_for(self, project: UUID) -> bool:
        """Whether they decide requests of this project."""
        return self.project in (None, project)


Deputies: TypeAlias = Callable[[UUID, datetime], Iterable[Deputy]]

DEPUTIES: list[Deputies] = []
"""Each returns the deputies in a tenant at an instant."""


def deputies_of(tenant_id: UUID, now: datetime) -> list[Deputy]:
    """Returns all deputies in a tenant."""
    return [deputy for read in DEPUTIES for deputy in read(tenant_id, now)]


def stood_in_by(person: int, tenant_id: UUID, now: datetime) -> list[Deputy]:
    """Returns the deputies that a person is."""
    return [each for each in deputies_of(tenant_id, now) if each.person == person]


PeakHours: TypeAlias = Callable[[Mapping[str, int], datetime], Iterable[tuple[str, datetime, datetime]]]

PEAK_HOURS: list[PeakHours] = []
"""Each returns the coming hours, by class, in which so many GPUs of a class should be kept free."""


def peak_hours(kept: Mapping[str, int], now: datetime) -> list[tuple[str, datetime, datetime]]:
    """Returns the peaks of classes of which so many GPUs are kept free at peaks."""
    return [peak for read in PEAK_HOURS for peak in read(kept, now)]


@dataclass(frozen=True, slots=True)
class ClassForecast:
    """The GPUs of a class that are expected to be in use or waited for, by hour from `starts` on, and those
    that the site has."""

    starts: datetime
    wanted: Sequence[float]
    gpus: int


ClassForecasts: TypeAlias = Callable[[], Mapping[str, ClassForecast]]

CLASS_FORECASTS: list[ClassForecasts] = []
"""Each returns the newest forecasts by class."""


def class_forecasts() -> dict[str, ClassForecast]:
    """Returns the newest forecast of each class that has one."""
    return {name: found for read in CLASS_FORECASTS for name, found in read().items()}


@dataclass(frozen=True, slots=True)
class WorkRate:
    """What finished runs of a kind of work in a project did on a class: steps of a GPU in an hour.

    Half of the `runs` did between `low` and `high`. They are a series: the newest runs with one driver and
    without a jump, from `since` on. `began`: what began it, `driver` or `jump`; empty: the first run.
    """

    unit: str
    per_gpu_hour: float
    low: float
    high: float
    runs: int
    last: datetime
    since: datetime
    began: str = ""
    driver: str = ""


WorkRates: TypeAlias = Callable[[UUID, str], Mapping[str, WorkRate]]

WORK_RATES: list[WorkRates] = []
"""Each returns what is learnt of a kind of work in a project, by class; all in one unit."""


def work_rates(project_id: UUID, workload: str) -> dict[str, WorkRate]:
    """Returns what is learnt of a kind of work in a project, by class."""
    return {name: rate for read in WORK_RATES for name, rate in read(project_id, workload).items()}


ProgramLines: TypeAlias = Callable[[Iterable[tuple[Any, str]], datetime], None]

PROGRAM_LINES: list[ProgramLines] = []
"""Each gets what programs of running bookings have said on nodes: allocations with a line of text."""


def program_lines_keep(lines: Iterable[tuple[Any, str]], now: datetime) -> None:
    """Gives lines of programs to the features. What a line is worth is theirs to find out."""
    said = list(lines)
    for keep in PROGRAM_LINES if said else ():
        keep(said, now)


NodeTelemetry: TypeAlias = Callable[[Sequence[tuple[UUID, wire.Telemetry]], datetime], None]

NODE_TELEMETRY: list[NodeTelemetry] = []
"""Each gets messages of nodes, each with its node, in the transaction that stores their readings."""


NodeData: TypeAlias = Callable[[Collection[str] | None], Mapping[str, Collection[str]]]

NODE_DATA: list[NodeData] = []
"""Each returns the data sets of nodes, by the node's name: those with these names, or (None) all of nodes
that take everybody's bookings."""


def data_near(names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Returns the nodes that have some of these data sets, with those that they have."""
    return {node: tuple(sorted(sets)) for read in NODE_DATA if names for node, sets in read(names).items()}


def data_known() -> tuple[str, ...]:
    """Returns the names of the data sets that nodes have."""
    return tuple(sorted({name for read in NODE_DATA for sets in read(None).values() for name in sets}))


MoreCores: TypeAlias = Callable[[Collection[UUID]], Mapping[UUID, int]]

MORE_CORES: list[MoreCores] = []
"""Each returns how many free host cores may be lent to each device of these bookings. What it returns for a
booking changes only with the generations of its nodes."""


def more_cores(bookings: Collection[UUID]) -> dict[UUID, int]:
    """Returns how many free host cores may be lent to each device of these bookings."""
    return {booking: most for read in MORE_CORES if bookings for booking, most in read(bookings).items()}


@dataclass(frozen=True, slots=True)
class HostSignals:
    """What a booking has used of its hosts. `cpu`: of its cores, in percent; `network_gib`: GiB a second
    that a node of a gang over several nodes received and sent, the lesser of both. None: not measured."""

    cpu: float | None = None
    network_gib: float | None = None


HostRead: TypeAlias = Callable[[Collection[UUID]], Mapping[UUID, HostSignals]]

HOST_SIGNALS: list[HostRead] = []
"""Each returns what these bookings have used of their hosts, if it is measured."""


def host_signals(bookings: Collection[UUID]) -> dict[UUID, HostSignals]:
    """Returns what these bookings have used of their hosts, if it is measured."""
    return {booking: each for read in HOST_SIGNALS if bookings for booking, each in read(bookings).items()}


StartReports: TypeAlias = Callable[[Any, Sequence[wire.ReportedAllocation], datetime], None]

START_REPORTS: list[StartReports] = []
"""Each gets, of a node, those reported allocations whose data is or was fetched, that have a script, or
that have failed."""


NodesWithData: TypeAlias = Callable[[Collection[UUID]], Collection[UUID]]

NODES_WITH_DATA: list[NodesWithData] = []
"""Each returns those of these nodes that have listed data sets. What it returns for a node changes only with
the generation of the node."""


def nodes_with_data(nodes: Collection[UUID]) -> frozenset[UUID]:
    """Returns the nodes whose documents have the data that bookings name."""
    return frozenset(node for read in NODES_WITH_DATA for node in read(nodes))


NodeOrders: TypeAlias = Callable[[Iterable[UUID]], Mapping[UUID, tuple[wire.DesiredNotebook, ...]]]

NODE_ORDERS: list[NodeOrders] = []
"""Each returns the notebooks of nodes, by node. What it returns for a node changes only with the
generation of the node."""


def notebooks_ordered(nodes: Iterable[UUID]) -> dict[UUID, tuple[wire.DesiredNotebook, ...]]:
    """Returns the notebooks that stand in the documents of nodes."""
    return {node: orders for read in NODE_ORDERS for node, orders in read(nodes).items()}


SlicesAhead: TypeAlias = Callable[[Iterable[UUID]], Mapping[UUID, tuple[wire.DesiredSlice, ...]]]

SLICES_AHEAD: list[SlicesAhead] = []
"""Each returns the slices that nodes make ahead of bookings, by GPU. What it returns for a node changes
only with the generation of the node."""


def slices_ahead(nodes: Iterable[UUID]) -> dict[UUID, tuple[wire.DesiredSlice, ...]]:
    """Returns the slices that stand in the documents of nodes without an allocation."""
    ids = list(nodes)
    return {gpu: found for read in SLICES_AHEAD if ids for gpu, found in read(ids).items()}


NodeMessages: TypeAlias = Callable[[Any, wire.Notebooks, datetime], bool]

NODE_MESSAGES: list[NodeMessages] = []
"""Each takes in a message of a locked node about its notebooks; False: it is not news."""


@dataclass(frozen=True, slots=True)
class BookingPart:
    """What a feature shows of a booking from a table of its own, which has at most one row of it.

    `out` is the serializer of what `shown(booking, row)` returns, in REST under `name`.
    """

    name: str
    table: Any
    out: Any
    shown: Callable[[Any, Any], Mapping[str, Any]]


BOOKING_PARTS: list[BookingPart] = []


@dataclass(frozen=True, slots=True)
class BookingCard:
    """A card on a page: its template, and what that knows as `card`."""

    template: str
    card: object


BookingCards: TypeAlias = Callable[[Any, Any, datetime], BookingCard | None]

BOOKING_CARDS: list[BookingCards] = []
"""Each returns the card of a feature by actor, booking and instant, if there is one."""


StatementCards: TypeAlias = Callable[[Any, Any, datetime], BookingCard | None]

STATEMENT_CARDS: list[StatementCards] = []
"""Each returns the card of a feature by actor, statement and instant, if there is one."""


NodeCards: TypeAlias = Callable[[UUID, datetime], BookingCard | None]

NODE_CARDS: list[NodeCards] = []
"""Each returns the card of a feature on the page of a node, for operators."""


StartDelays: TypeAlias = Callable[[Sequence[tuple[Collection[UUID], datetime]], datetime], list[timedelta]]

START_DELAYS: list[StartDelays] = []
"""Each returns how much later than planned each of many starts may be, given its GPUs and its time."""


def start_delays(starts: Sequence[tuple[Collection[UUID], datetime]], now: datetime) -> list[timedelta]:
    """Returns how much later than planned each of these starts, with its GPUs, may be."""
    found = [delays(starts, now) for delays in START_DELAYS]
    return (
        [max(each, default=timedelta()) for each in zip(*found, strict=True)]
        if found
        else [timedelta()] * len(starts)
    )


OrderedPauses: TypeAlias = Callable[[], Any]

ORDERED_PAUSES: list[OrderedPauses] = []
"""Each returns the filter (a `Q`) of pauses that it has ordered and that it still wants."""

KeptUses: TypeAlias = Callable[[], Iterable[tuple[UUID, str, str, bool]]]

KEPT_USES: list[KeptUses] = []
"""Each returns bookings which a limit does not forbid anything, each with the name of the limit's owner
in the quota tree, the class, and whether it is about what the owner is guaranteed."""


def kept_uses() -> list[tuple[UUID, str, str, bool]]:
    """Returns the bookings that stay above a limit, in a fixed order."""
    return sorted({use for read in KEPT_USES for use in read()})


@dataclass(frozen=True, slots=True)
class HomePart:
    """A part of the start page that the browser fetches after it: the section with this id from a page
    of the tenant (`overview`), and what stands there until it comes."""

    id: str
    page: str
    title: str
    is_for: Callable[[Any], bool]


HOME_PARTS: list[HomePart] = []


def home_parts(actor: Any) -> list[HomePart]:  # noqa: ANN401 (an Actor)
    """Returns the parts of the start page that a person sees."""
    return [part for part in HOME_PARTS if part.is_for(actor)]


@dataclass(frozen=True, slots=True)
class Quoted:
    """What a quote is for: project, request, its tier, the workload or "", and the reader's time zone.
    `starts` and `seconds` are those of the first option."""

    project: Any
    ask: Any
    tier: str
    workload: str
    zone: str
    starts: datetime
    seconds: int


@dataclass(frozen=True, slots=True)
class Advice:
    """What would be better than the request: a sentence with its numbers, the changed request (None:
    no request changes it), and an address with what to do."""

    code: str
    sentence: str
    ask: Any
    link: str


QuoteAdvice: TypeAlias = Callable[[Quoted, datetime], Iterable[Advice]]

QUOTE_ADVICE: list[QuoteAdvice] = []
"""Each returns advice for what is quoted, at an instant."""


def quote_advice(quoted: Quoted, now: datetime) -> tuple[Advice, ...]:
    """Returns all advice for what is quoted."""
    return tuple(each for read in QUOTE_ADVICE for each in read(quoted, now))


WorkloadsKnown: TypeAlias = Callable[[UUID], list[str]]

WORKLOADS_KNOWN: list[WorkloadsKnown] = []
"""Each returns names of workloads that have run in a project."""


@dataclass(frozen=True, slots=True)
class Diverted:
    """A request whose classes are ordered by what finished runs of its workload cost: the facts of the
    sentence, and the detail of the event that says so."""

    workload: str
    facts: Mapping[str, Any]
    detail: Mapping[str, Any]


Prices: TypeAlias = Callable[[], Mapping[str, tuple[Decimal, str]]]
"""Reads what an hour of a request costs now on each of its classes, and the currency."""

Diversions: TypeAlias = Callable[[Any, str, Any, Prices, datetime], Diverted | None]

DIVERSIONS: list[Diversions] = []
"""Each says by project, name of the workload, request and time whether that is diverted."""


def diverted(
    project: Any,  # noqa: ANN401 (a row)
    workload: str,
    ask: Any,  # noqa: ANN401 (a request)
    prices: Prices,
    now: datetime,
) -> Diverted | None:
    """Returns how a request is diverted; None: as it was asked for."""
    if not workload or len(ask.classes) == 1:
        return None
    return next((found for read in DIVERSIONS if (found := read(project, workload, ask, prices, now))), None)


FigureCards: TypeAlias = Callable[[Any, Mapping[str, str], datetime], BookingCard | None]

FIGURE_CARDS: list[FigureCards] = []
"""Each returns a card for the page of figures by actor (None: an operator), the parameters of the
address, and instant."""


Metrics: TypeAlias = Callable[[datetime], Iterable[Metric]]

METRICS: list[Metrics] = []
"""Each returns metrics for Prometheus at an instant. They name no tenant."""


DemandHours: TypeAlias = Mapping[tuple[str, datetime], float]
"""GPUs by class and by the begin of an hour."""


HoursWaited: TypeAlias = Callable[[datetime, datetime], Iterable[tuple[str, datetime]]]

HOURS_WAITED: list[HoursWaited] = []
"""Each returns the hours of a time in which somebody of the site waited for a class, by its name."""


def hours_waited(starts: datetime, ends: datetime) -> set[tuple[str, datetime]]:
    """Returns the hours of a time in which somebody waited for a class."""
    return {hour for read in HOURS_WAITED for hour in read(starts, ends)}


@dataclass(frozen=True, slots=True)
class DemandSource:
    """Work outside of bookings that counts as demand. `hours(kind, starts, ends)` has the GPUs that were
    `requested` in each hour, `in_use` or `waited` for on average. `since(read)` is the oldest time of
    what has come since an instant, of all with None; None: nothing."""

    hours: Callable[[str, datetime, datetime], DemandHours]
    since: Callable[[datetime | None], datetime | None]


DEMAND_SOURCES: list[DemandSource] = []


@dataclass(frozen=True, slots=True)
class Sprint:
    """A sprint of a mapped board that has started, or closed. `actor` is the person whose bookings are
    made for it; `reference` is its address, `ends` its planned end."""

    actor: Any
    project: Any
    reference: str
    name: str
    ends: datetime | None
    is_started: bool


@dataclass(frozen=True, slots=True)
class SprintAct:
    """What a feature did for a sprint, in a sentence, and the issue that gets it as a comment, if any."""

    sentence: str
    issue: str = ""


SprintActs: TypeAlias = Callable[[Sprint, datetime], SprintAct | None]

SPRINT_ACTS: list[SprintActs] = []
"""Each acts on a sprint in the caller's transaction, and refuses nothing."""


def sprint_acts(sprint: Sprint, now: datetime) -> list[SprintAct]:
    """Lets the features act on a sprint."""
    return [found for act in SPRINT_ACTS if (found := act(sprint, now)) is not None]


EnergyWaits: TypeAlias = Callable[[], Mapping[str, tuple[str, int]]]

ENERGY_WAITS: list[EnergyWaits] = []
"""Each returns by tier what its work prefers, `price` or `carbon`, and for how many seconds it waits."""


def energy_waits() -> dict[str, tuple[str, int]]:
    """Returns what work waits for cheap or clean energy, by tier."""
    return {tier: found for read in ENERGY_WAITS for tier, found in read().items()}


@dataclass(frozen=True, slots=True)
class Task:
    """Something that waits for an answer: how many, where it is given, and an icon."""

    text: str
    url: str
    icon: str


Tasks: TypeAlias = Callable[[Any, datetime], Iterable[Task]]

TASKS: list[Tasks] = []
"""Each returns what waits for an answer of an actor, or of operators (None)."""


def tasks_of(actor: Any, now: datetime) -> list[Task]:  # noqa: ANN401 (an Actor, or None)
    """Returns what waits for an answer in all features."""
    return [task for read in TASKS for task in read(actor, now)]
