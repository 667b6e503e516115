"""GPU-hours: caps on them, and what persons and projects have used."""

from dataclasses import dataclass, field

from solver.model.omitted import OMITTED_WHEN_EMPTY


@dataclass(frozen=True, slots=True)
class Cap:
    """Maximum unit-seconds of a class for an owner: in [starts, ends), whole days of UTC, or, with
    `rolling_days`, in any that many consecutive days."""

    owner: str
    gpu_class: str
    most: int
    starts: int
    ends: int
    rolling_days: int | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """Unit-seconds of a class that a person used in a project on the UTC day that begins at `day`.

    Without an `owner` they are of the whole project.
    """

    tenant: str
    project: str
    gpu_class: str
    day: int
    unit_seconds: int
    owner: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
