"""How long tiers that are never paused may borrow, by the live policy."""

from collections.abc import Iterable

from allocation.models import PolicyVersion
from allocation.rules.ask.words.times import duration_words
from solver.model.policy import ANY_TIER
from tenants.models import Tier
from tenants.platform.reference import by_version


@by_version
def borrow_windows_read() -> tuple[tuple[str, int], ...]:
    """Seconds by tier; `ANY_TIER` is for tiers without an entry."""
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    return tuple(live.document.get("borrow_windows", {}).items())


def longest_loan(tier: str) -> int:
    """The longest window in seconds for which a tier that is never paused may borrow; 0: none."""
    windows = dict(borrow_windows_read())
    return windows.get(tier, windows.get(ANY_TIER, 0))


def loans_text(tiers: Iterable[Tier]) -> str:
    """The tiers that may borrow although they are never paused: `Standard for at most 4 h`."""
    found = (
        (tier.name, longest_loan(tier.slug))
        for tier in tiers
        if tier.counts_against_guarantee and not tier.pausable
    )
    return ", ".join(f"{name} for at most {duration_words(seconds)}" for name, seconds in found if seconds)
