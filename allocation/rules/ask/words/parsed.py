"""What one line of text said: fields, where each was said, and what nobody understood."""

from dataclasses import dataclass
from datetime import datetime

from allocation.errors import AskError
from allocation.rules.ask.words.document import AskDocument, Together, duration_of
from allocation.rules.recurrence import Recurrence


@dataclass(frozen=True, slots=True)
class ClassEntry:
    """A GPU class as people name it. `memory_mb` is one whole GPU's; `profiles` its slices."""

    slug: str
    label: str
    aliases: tuple[str, ...]
    memory_mb: int
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TierEntry:
    """A tier as people name it."""

    slug: str
    name: str
    pausable: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What an ask may name: classes in the order in which `any` takes them, the kinds of work whose
    speeds are known, tiers, and the asker's projects as (slug, name)."""

    classes: tuple[ClassEntry, ...]
    workloads: tuple[str, ...] = ()
    tiers: tuple[TierEntry, ...] = ()
    projects: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Characters [start, end) of the text, which field they set, and what they mean."""

    start: int
    end: int
    field: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A line that could be meant instead: what is different about it, and all of its text."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Characters [start, end) that can't be meant so, why, and the lines that would be right."""

    start: int
    end: int
    code: str
    sentence: str
    repairs: tuple[Repair, ...] = ()


NOT_UNDERSTOOD = "not_understood"
"""The code of a problem with words that have no meaning where they stand."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the text says; None (or no classes) where it says nothing, for the caller's defaults.

    Every word is in a part, in a problem or in `noise` (courtesies and articles). With `cheapest`
    the least price decides among what fits. `missing` is what a line without a problem does not
    say yet. Times are aware UTC.
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
    tier: str | None = None
    project: str | None = None
    cheapest: bool = False
    missing: Problem | None = None

    @property
    def unknown(self) -> tuple[tuple[int, int], ...]:
        """The spans that nobody understood."""
        return tuple(
            (each.start, each.end) for each in self.problems if each.code == NOT_UNDERSTOOD
        )

    def document(self, *, duration: int | None = None, first: bool = False) -> AskDocument:
        """The structured ask, `duration` seconds long where the text gives none; of a series its
        `first` date, if that is what the caller wants.

        AskError: something was not understood, is wrong, is missing, or repeats unexpectedly.
        """
        if self.repeat is not None and not first:
            raise AskError("repeats", "This repeats: ask for it as a series.", "request")
        if self.problems:
            raise AskError(self.problems[0].code, self.problems[0].sentence, "request")
        if not self.classes:
            raise AskError("no_class", "Say which GPU class, or any.", "request")
        seconds = self.duration or duration
        if seconds is None:
            raise AskError("no_duration", "Say for how long, like 6h.", "request")
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
        )
        document.check_share()
        document.check_window()
        return document
