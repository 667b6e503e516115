"""The block of the operators' decisions page that shows how well claims hold, by organisation."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from allocation.models import PolicyVersion
from allocation.queries.fleet.claims import ClaimsReport, TenantClaims, claims_report
from allocation.services.policy.policies import policy_of
from allocation.web.parts.times import length_words

SPAN = timedelta(days=7)
# A notice goes out with the next cycle, and the GPUs are cleared after it.
CYCLE = timedelta(seconds=60)
KEYS = (
    ("firm", "fixed window"),
    ("guarantee", "guarantee"),
    ("tier", "tier"),
    ("part", "part of the idle GPUs"),
    ("share", "past use"),
    ("age", "waiting time"),
)
RULES = (
    ("taken_back", "guarantee"),
    ("own_part", "own project's part"),
    ("higher_tier", "higher tier"),
    ("fairer_share", "fairer share"),
    ("one_class", "one class before several"),
    ("moved_together", "operator's move"),
)


@dataclass(frozen=True, slots=True)
class ClaimsRow:
    """An organisation's line. `is_bad`: a claim inside its guarantee was not met in time."""

    name: str
    claims: str
    is_bad: bool
    overtaken: str
    delayed: int
    pauses: str


@dataclass(frozen=True, slots=True)
class ClaimsBlock:
    """The block; `dropped` is empty if every pause that was planned was allowed."""

    span: str
    bound: str
    rows: tuple[ClaimsRow, ...]
    dropped: str


def claims_block(now: datetime) -> ClaimsBlock:
    """Returns the block of the last week."""
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    cool_down, margin = (timedelta(seconds=n) for n in (policy.cool_down, policy.notice_margin))
    found = claims_report(now - SPAN, now, cool_down, margin + CYCLE)
    return ClaimsBlock(
        span=length_words(SPAN.total_seconds()),
        bound=length_words(found.bound.total_seconds()),
        rows=tuple(map(_row, found.tenants)),
        dropped=_dropped(found),
    )


def _row(each: TenantClaims) -> ClaimsRow:
    claims = f"{each.had} of {each.asked}"
    if each.open:
        claims += f", {each.open} waiting"
    return ClaimsRow(
        name=each.name,
        claims=claims if each.asked else "none",
        is_bad=each.missed > 0,
        overtaken=_counts(each.overtaken, KEYS),
        delayed=each.delayed,
        pauses=_counts(each.pauses, RULES),
    )


def _counts(found: dict[str, int], words: tuple[tuple[str, str], ...]) -> str:
    """Returns `tier 12, past use 3`, or `none`."""
    return ", ".join(f"{word} {found[key]}" for key, word in words if found.get(key)) or "none"


def _dropped(found: ClaimsReport) -> str:
    if not found.dropped:
        return ""
    words = dict(RULES)
    return ", ".join(f"{words.get(rule, rule)} {count}" for rule, count in found.dropped.items())
