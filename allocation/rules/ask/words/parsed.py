"""The result of parsing one line: its fields, where each is in the text, and its problems."""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from allocation.errors import AskError
from allocation.rules.ask.words.document import (
    MAX_COUNT,
    MAX_DURATION_SECONDS,
    AskDocument,
    AskGroup,
    Together,
    duration_of,
)
from allocation.rules.recurrence import Recurrence
from tenants.platform.coded import Coded, coded
from tenants.platform.text import FIRST_CURRENCY


@dataclass(frozen=True, slots=True)
class ClassEntry:
    """The names of a class, the memory of one whole GPU or core, and its MIG profiles."""

    slug: str
    label: str
    aliases: tuple[str, ...]
    memory_mb: int
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TierEntry:
    """The names of a tier."""

    slug: str
    name: str
    pausable: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The names that a request can use: classes of GPUs in the order of `any`, kinds of work with known
    speeds, tiers, the caller's projects and the zones as (slug, name), data sets that nodes have,
    classes of host cores, and the currency of amounts."""

    classes: tuple[ClassEntry, ...]
    workloads: tuple[str, ...] = ()
    tiers: tuple[TierEntry, ...] = ()
    projects: tuple[tuple[str, str], ...] = ()
    zones: tuple[tuple[str, str], ...] = ()
    data: tuple[str, ...] = ()
    hosts: tuple[ClassEntry, ...] = ()
    currency: str = FIRST_CURRENCY

    @property
    def every_class(self) -> tuple[ClassEntry, ...]:
        """The classes of GPUs, then those of host cores."""
        return (*self.classes, *self.hosts)


@dataclass(frozen=True, slots=True)
class Part:
    """Characters [start, end) of the text, the field that they set, and their meaning."""

    start: int
    end: int
    field: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A corrected line: a label for the correction, and the whole text."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Characters [start, end) that are wrong, the reason, and corrected lines."""

    start: int
    end: int
    code: str
    text: Coded
    repairs: tuple[Repair, ...] = ()


NOT_UNDERSTOOD = "not_understood"
_FOR_RULES = {"deadline_unreachable", "count_out_of_bounds", "duration_out_of_bounds"}
"""The code of a problem with words that have no meaning in their place."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The fields of a line. A field that the line does not set is None (`classes`: empty).

    Every word belongs to a part, a problem or `noise` (courtesies and articles). With `cheapest`
    the lowest price decides among the options. `array` is a number of runs, of which `parallel` are
    open at a time. `ends` is the end of a fixed window that names it, in the zone `ends_in`. A mixed
    request has further `groups`. `missing` is the part that a line without problems still lacks.
    Times are aware UTC.
    """

    count: int | None
    classes: tuple[str, ...]
    profile: str | None
    together: Together | None
    required: bool
    duration: int | None
    starts: datetime | None
    not_before: datetime | None
    deadline: datetime | None
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...]
    noise: tuple[tuple[int, int], ...] = ()
    share: int | None = None
    cores: int = 0
    memory: int = 0
    workload: str | None = None
    repeat: Recurrence | None = None
    pin: tuple[str, ...] = ()
    most_cost: Decimal | None = None
    tier: str | None = None
    project: str | None = None
    cheapest: bool = False
    missing: Problem | None = None
    array: int | None = None
    parallel: int | None = None
    groups: tuple[AskGroup, ...] = ()
    ends: datetime | None = None
    ends_in: str | None = None
    zones: tuple[str, ...] = ()
    not_zones: tuple[str, ...] = ()
    storage: str | None = None
    scratch: int = 0
    data: tuple[str, ...] = ()
    host: bool = False

    @property
    def unknown(self) -> tuple[tuple[int, int], ...]:
        """The spans of words without a meaning."""
        return tuple((each.start, each.end) for each in self.problems if each.code == NOT_UNDERSTOOD)

    @property
    def is_for_rules(self) -> bool:
        """Whether nothing is wrong except a deadline that is too early for the duration, too many GPUs or
        too long a time. The rules of the project and the plan, which no line knows, say what would work."""
        codes = {each.code for each in self.problems}
        is_whole = bool(self.classes) and self.duration is not None and not self.groups
        is_said = "deadline_unreachable" not in codes or self.deadline is not None
        is_said = is_said and ("count_out_of_bounds" not in codes or self.count is not None)
        return bool(codes) and codes <= _FOR_RULES and is_whole and is_said

    def refused_document(self, *, first: bool = False, many: bool = False) -> AskDocument:
        """The structured request of a line that `is_for_rules`, which admission refuses. Raises AskError
        as `document` does."""
        count, seconds = self.count or 1, self.duration or 0
        within = replace(
            self,
            problems=(),
            deadline=None,
            count=min(count, MAX_COUNT),
            duration=min(seconds, MAX_DURATION_SECONDS),
        )
        document = within.document(first=first, many=many)
        return replace(document, deadline=self.deadline, count=count, duration=seconds)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The corrected lines for the first problem that has some, or for what is missing."""
        wrong = (*self.problems, *((self.missing,) if self.missing else ()))
        return next((each.repairs for each in wrong if each.repairs), ())

    def document(
        self, *, duration: int | None = None, first: bool = False, many: bool = False
    ) -> AskDocument:
        """The structured request. `duration` is the default in seconds. A recurrence is refused,
        unless `first` asks for its first date; an array, unless `many` asks for one run of it.

        Raises AskError for problems, missing parts, recurrences and arrays.
        """
        if self.array is not None and not many:
            why = coded("ask_is_array")
            raise AskError("is_array", why, "request")
        if self.repeat is not None and not first:
            why = coded("ask_repeats")
            raise AskError("repeats", why, "request")
        if self.problems:
            raise AskError(self.problems[0].code, self.problems[0].text, "request")
        if not self.classes:
            raise AskError("no_class", coded("ask_gpu_class"), "request")
        seconds = self.duration or duration
        if seconds is None:
            raise AskError("no_duration", coded("ask_duration"), "request")
        document = AskDocument(
            count=self.count or 1,
            classes=self.classes,
            profile=self.profile,
            together=self.together or "any",
            required=self.required,
            duration=duration_of(seconds),
            starts=self.starts,
            not_before=self.not_before,
            deadline=self.deadline,
            share=self.share,
            cores=self.cores,
            memory=self.memory,
            workload=self.workload,
            pin=self.pin,
            most_cost=self.most_cost,
            groups=self.groups,
            zones=self.zones,
            not_zones=self.not_zones,
            storage=self.storage,
            scratch=self.scratch,
            data=self.data,
            host=self.host,
            ends_in=self.ends_in,
        )
        document.check()
        return document
