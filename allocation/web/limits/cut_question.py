"""The question before a limit is set below what is in use or booked: keep, drain or pause."""

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from django.db import transaction
from django.utils import timezone

from allocation.web.parts.times import moment_words
from tenants.platform.errors import Refused
from tenants.platform.forms.confirm import Choice, Confirmation
from tenants.platform.nouns import unit_text
from tenants.services import gpus_text
from tenants.services.limit_changes import CHOSEN, AboveRow, Cut, CutAnswer, CutEffect, Most
from tenants.web.parts import counted

MOST_ROWS = 6
CHOICES = (
    Choice(CutAnswer.KEEP, "Keep", "What runs and is booked stays. Only new bookings are limited."),
    Choice(
        CutAnswer.DRAIN,
        "Drain",
        "What runs stays to its end. Planned starts above the limit wait, and can become later.",
    ),
    Choice(
        CutAnswer.PAUSE,
        "Pause",
        "What runs above the limit gets a notice and is paused, lower tiers and newer work first. Tiers that "
        "are never paused, and runs in their protected time, run on. Planned starts wait.",
    ),
)

OF_GUARANTEE = (
    Choice(
        CutAnswer.KEEP,
        "Keep",
        "What runs stays, and no other organisation has it paused. Planned starts stay allowed, but are not "
        "guaranteed any more.",
    ),
    Choice(
        CutAnswer.DRAIN,
        "Drain",
        "What runs stays to its end, and no other organisation has it paused. Planned starts can become "
        "later.",
    ),
    Choice(
        CutAnswer.PAUSE,
        "Pause",
        "What runs above the guarantee gets a notice and is paused, lower tiers and newer work first. Tiers "
        "that are never paused, and runs in their protected time, run on.",
    ),
)

OF_INNER = (
    Choice(
        CutAnswer.KEEP,
        "Keep",
        "What runs stays, and nobody in the organisation has it paused. Planned starts stay allowed.",
    ),
    Choice(
        CutAnswer.DRAIN,
        "Drain",
        "What runs stays to its end, and nobody in the organisation has it paused. Planned starts can become "
        "later.",
    ),
    OF_GUARANTEE[2],
)
"""Of a guarantee of a lab or project: what other organisations may pause is the same as before."""


def choices_of(effects: Sequence[CutEffect]) -> tuple[Choice, ...]:
    """Returns the answers to these effects; none without any."""
    if not effects:
        return ()
    if not any(each.is_guarantee for each in effects):
        return CHOICES
    return OF_INNER if all(each.is_inner for each in effects) else OF_GUARANTEE


def effects_of(save: Callable[[Cut], object]) -> list[CutEffect]:
    """Returns what would be above the limits that `save` sets, and writes nothing. What is refused is
    refused by the save itself."""
    cut = Cut()
    try:
        with transaction.atomic():
            save(cut)
            transaction.set_rollback(True)
    except Refused:
        return []
    return cut.effects


def lost_by(effect: CutEffect, zone: tzinfo, now: datetime) -> tuple[str, ...]:
    """Returns the sentences on a limit that is cut: before and after, use, and each booking above it."""
    before = _of(effect, effect.before)
    first = f"{_of(effect, effect.after)}; before: {before[0].lower()}{before[1:]}."
    use = f"In use now: {counted(gpus_text(effect.used), 'GPU')}."
    rows = [_row(each, effect.after, zone, now) for each in effect.rows[:MOST_ROWS]]
    more = len(effect.rows) - MOST_ROWS
    left = [f"And {counted(str(more), 'booking')} more."] if more > 0 else []
    return tuple(unit_text(each, effect.gpu_class) for each in (f"{first} {use}", *rows, *left))


def cut_confirmation(save: Callable[[Cut], object], back: str) -> Confirmation | None:
    """Returns the question before a command that lowers a limit or a guarantee; None: nothing is above."""
    effects = effects_of(save)
    if not effects:
        return None
    now, zone = timezone.now(), timezone.get_current_timezone()
    lost = tuple(sentence for each in effects for sentence in lost_by(each, zone, now))
    return Confirmation(
        title_of(effects),
        lost,
        "Go ahead",
        back,
        "Leave it as it is",
        chosen=CHOSEN,
        choices=choices_of(effects),
    )


def title_of(effects: Sequence[CutEffect]) -> str:
    """Returns the question about these limits."""
    names = dict.fromkeys(each.name for each in effects)
    if len(names) == 1 and any(each.is_guarantee for each in effects):
        return f"Lower the guarantee of {effects[0].name}?"
    if len(effects) == 1:
        return f"Lower the limit of {effects[0].name}?"
    return f"Lower {len(effects)} limits?"


def _of(effect: CutEffect, most: Most) -> str:
    if not effect.is_guarantee:
        return _most(most)
    return f"Guaranteed: {counted(gpus_text(most.units or 0), 'GPU')}"


def _most(most: Most) -> str:
    parts = []
    if most.units is not None:
        parts.append(f"At most {counted(gpus_text(most.units), 'GPU')} at once")
    if most.gpu_hours is not None:
        when = "a month" if most.days is None else f"in {counted(str(most.days), 'day')}"
        parts.append(f"{'at' if parts else 'At'} most {most.gpu_hours} GPU-hours {when}")
    return " and ".join(parts) or "No limit"


def _row(row: AboveRow, after: Most, zone: tzinfo, now: datetime) -> str:
    is_larger = after.units is not None and row.units > after.units
    larger = " and larger than the limit: it starts only if it is kept" if is_larger else ""
    what = f"{row.label} of {row.owner}, {counted(gpus_text(row.units), 'GPU')}"
    if row.is_planned:
        return f"Above it: {what}, planned for {moment_words(row.starts, zone, now)}{larger}."
    can = "can be paused" if row.can_pause else "is never paused"
    return f"Above it: {what}, runs until {moment_words(row.ends, zone, now)} and {can}."
