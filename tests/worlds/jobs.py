"""What somebody asks for in a world."""

from dataclasses import dataclass

from solver import Ask, Tier

HOUR, DAY = 3_600, 86_400


@dataclass(frozen=True)
class Job:
    """What somebody will ask for, and what becomes of it whatever the portal decides."""

    name: str
    at: int
    tenant: str
    project: str
    owner: str
    tier: Tier
    ask: Ask
    seconds: int
    earliest: int
    fixed: bool
    patience: int | None
    really: int
    cancelled_after: int | None
    extended_by: int
    series: str | None = None
    durations: tuple[tuple[str, int], ...] = ()
    """Seconds by class, where these differ; `seconds` is the shortest."""
    cheapest: bool = False
    within: bool = False


def owners_of(job: Job) -> tuple[str, str]:
    """Whose quota it uses."""
    return job.tenant, job.project
