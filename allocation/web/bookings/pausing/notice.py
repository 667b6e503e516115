"""The texts of a pause: the notice that counts down and the receipt. No database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from allocation.models import Booking, Pause, PauseRelation
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import duration_text, shape_text
from allocation.rules.states import State
from allocation.web.bookings.costs import CostLine
from allocation.web.bookings.page_context import PageContext
from allocation.web.parts.times import clock, length_words, moment_words
from allocation.words.amounts import unit_of
from billing.rules import money_text
from solver.reasons.catalogue import BY_CODE
from tenants.models import Tier
from tenants.platform.errors import Refused
from tenants.platform.nouns import unit_text

MOVED_TOGETHER = BY_CODE["moved_together"].id
NO_CLAIM = tuple(
    BY_CODE[each].id for each in ("budget_paused", "operator_paused", "machine_leaves", "limit_cut")
)
METHODS = {
    "stop": "the node ends running programs, first with SIGTERM, then with SIGKILL",
    "signal": "the node kills programs that have not exited",
    "suspend": "the node suspends running programs, which resume later where they stopped",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pause; `mark` is `done`, `cur` or empty."""

    name: str
    when: str
    mark: str


@dataclass(frozen=True, slots=True)
class BetterTierLink:
    """A link to book in a tier that is not paused for this booking."""

    words: str
    href: str


@dataclass(frozen=True, slots=True)
class PauseChoices:
    """What the owner can do. `refused` says why there is no extra time."""

    refused: Refused | None
    more_words: str
    offers: tuple[BetterTierLink, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """A pause that counts down; `left` and `whole` are seconds."""

    label: str
    title: str
    href: str
    left: int
    whole: int
    left_text: str
    at: str
    who: str
    why: str
    lost: str
    money: str
    default: str
    steps: tuple[Step, ...]
    is_saved: bool
    is_overdue: bool
    stuck: str

    @property
    def countdown(self) -> str:
        """Returns the remaining time for the page's title; empty after the deadline."""
        return f"({self.left_text}) " if self.left else ""

    @property
    def percent(self) -> int:
        """Returns the remaining part of the grace period in percent."""
        return round(self.left * 100 / self.whole) if self.whole else 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of a pause, line by line."""

    number: int
    headline: str
    why: str
    lines: tuple[CostLine, ...]
    basis: str


def notice_of(booking: Booking, pause: Pause, ctx: PageContext, silent: Sequence[str] = ()) -> Notice:
    """Returns the notice; `silent` names unreachable nodes."""
    left = max(0, int((pause.deadline - ctx.now).total_seconds()))
    is_saved, is_overdue = pause.acknowledged_at is not None, left == 0
    return Notice(
        label=booking.label,
        title=booking.name or booking.label,
        href=f"{ctx.base}bookings/{booking.label}",
        left=left,
        whole=max(1, int((pause.deadline - pause.notified_at).total_seconds())),
        left_text=f"{left // 60}:{left % 60:02}",
        at=clock(pause.deadline, ctx.zone),
        who=_who(pause),
        why=pause.sentence,
        lost=_lost(booking, pause, ctx),
        money=_money(booking, pause, ctx),
        default=_default(booking, pause, ctx),
        steps=_steps(booking, pause, ctx),
        is_saved=is_saved,
        is_overdue=is_overdue,
        stuck=_stuck(silent) if is_saved or is_overdue else "",
    )


def unpausable_link(booking: Booking, tier: Tier, ctx: PageContext) -> BetterTierLink:
    """Returns a link to book the same request in a tier that is never paused."""
    ask = AskDocument.from_json(booking.ask)
    return BetterTierLink(f"Book in {tier.name}, which is never paused", _book(ask, tier, ctx))


def higher_tier_link(
    booking: Booking, tier: Tier, price: str, seconds: int, ctx: PageContext
) -> BetterTierLink:
    """Returns a link to book the remaining time in a higher tier, with its price."""
    ask = AskDocument.from_json(booking.ask)
    whole = max(60, seconds // 60 * 60)
    words = f"Continue in {tier.name}: {length_words(whole)} for {price}"
    return BetterTierLink(words, _book(ask, tier, ctx, whole))


def receipt_of(booking: Booking, pause: Pause, ctx: PageContext) -> Receipt:
    """Returns the receipt of a pause."""
    began = moment_words(pause.notified_at, ctx.zone, ctx.now)
    lines = [CostLine("Notified", began), CostLine("Deadline", clock(pause.deadline, ctx.zone))]
    for name, moment in (
        ("Saved", pause.acknowledged_at),
        ("Devices proven empty", pause.emptied_at),
        ("Resumed", pause.resumed_at),
        ("Withdrawn" if pause.withdrawn else "Ended", pause.ended_at),
    ):
        if moment is not None:
            lines.append(CostLine(name, moment_words(moment, ctx.zone, ctx.now)))
    if pause.emptied_at is not None:
        lost = length_words(pause.lost_seconds) if pause.lost_seconds else "nothing"
        lines.append(CostLine("Work to redo", lost))
        credit = money_text(pause.credit, booking.currency)
        lines.append(CostLine("Credited", credit))
        if pause.relation == PauseRelation.IDLE:
            lines.append(CostLine(f"Its {unit_of(booking.ask)}s were idle", "no credit, no fee"))
        elif pause.relation:
            lines.append(CostLine("Caused by your organisation", "no credit"))
        charged = money_text(pause.charged, booking.currency)
        lines.append(CostLine("Charged for this run", charged, strong=True))
    return Receipt(
        number=pause.number,
        headline=_outcome(pause),
        why=_why(booking, pause),
        lines=tuple(lines),
        basis=f"Rule {pause.rule}, policy {pause.policy_version}"
        + (f", decision {pause.decision_id}" if pause.decision_id else ""),
    )


def _why(booking: Booking, pause: Pause) -> str:
    said = f"{_who(pause)} {pause.sentence}".strip()
    return unit_text(said, are_cores=bool(booking.ask.get("host")))


def _who(pause: Pause) -> str:
    if pause.rule in NO_CLAIM:
        return ""
    name = f"{pause.beneficiary_label} of your organisation"
    if pause.relation == PauseRelation.IDLE:
        return ""
    if pause.rule == MOVED_TOGETHER:
        who = name if pause.beneficiary_label else "a waiting booking"
        return f"It is moved so that {who} can start."
    who = name if pause.beneficiary_label else "A higher-priority booking"
    return f"{who} needs its GPUs."


def _lost(booking: Booking, pause: Pause, ctx: PageContext) -> str:
    if pause.acknowledged_at is not None:
        return "Work is saved: nothing has to be redone."
    if booking.saved_at is None:
        seconds = (pause.notified_at - pause.ready_at).total_seconds()
        ran = length_words(seconds) if seconds >= 60 else "less than a minute"
        return f"Not saved in this run: without a save, {ran} of work has to be redone."
    ago = (ctx.now - booking.saved_at).total_seconds()
    return f"Last saved {length_words(ago)} ago; only work since then has to be redone."


def _money(booking: Booking, pause: Pause, ctx: PageContext) -> str:
    since = clock(pause.notified_at, ctx.zone)
    if pause.relation == PauseRelation.IDLE:
        return "The run is charged until it ends, without a fee."
    if pause.relation:
        return (
            "The other booking belongs to your organisation, so the run is charged until it "
            "ends and nothing is credited."
        )
    return f"Nothing is charged from {since} until it runs again. Redone work is credited automatically."


def _default(booking: Booking, pause: Pause, ctx: PageContext) -> str:
    if pause.acknowledged_at is not None:
        return "The devices are being cleared."
    at = clock(pause.deadline, ctx.zone)
    return f"If you do nothing, at {at} {METHODS[pause.method]}. The deadline does not change."


def _steps(booking: Booking, pause: Pause, ctx: PageContext) -> tuple[Step, ...]:
    """Returns the steps of the pause with the progress."""

    def at(moment: datetime | None) -> str:
        return clock(moment, ctx.zone) if moment else ""

    resumes = booking.expected_start if pause.resumed_at is None else pause.resumed_at
    is_out = pause.emptied_at is not None
    is_leaving = pause.acknowledged_at is not None or pause.deadline <= ctx.now
    reached = 4 if pause.resumed_at else 3 if is_out else 2 if is_leaving else 1
    later = (
        f"≈ {moment_words(resumes, ctx.zone, ctx.now)}"
        if resumes
        else f"when {unit_of(booking.ask)}s are free"
    )
    steps = (
        ("Notice", at(pause.notified_at)),
        ("Saving", at(pause.acknowledged_at) or f"until {at(pause.deadline)}"),
        ("Pause", at(pause.emptied_at) or "when proven empty"),
        ("Handed over", at(pause.emptied_at)),
        ("Resume", at(pause.resumed_at) or later),
    )
    marks = ["done" if n < reached else "cur" if n == reached else "" for n in range(len(steps))]
    if is_out:
        marks[3], marks[4] = "done", "done" if pause.resumed_at else "cur"
    return tuple(Step(name, when, mark) for (name, when), mark in zip(steps, marks, strict=True))


def _stuck(silent: Sequence[str]) -> str:
    if not silent:
        return ""
    names = " and ".join(silent)
    return (
        f"{names} does not respond, so the device is not proven empty and is not given to "
        "anyone else. Nothing is charged until then."
    )


def _outcome(pause: Pause) -> str:
    if pause.resumed_at is not None:
        return "Paused and resumed"
    if pause.withdrawn:
        return "Not paused: the notice was withdrawn in time"
    if pause.ended_at is not None:
        return "Paused, then ended; the remaining money was returned"
    return "Paused" if pause.emptied_at is not None else "Being paused"


def _book(ask: AskDocument, tier: Tier, ctx: PageContext, seconds: int = 0) -> str:
    shape = shape_text(ask.count, " or ".join(ask.classes), ask.profile)
    text = f"{shape} {duration_text(seconds or ask.duration)}"
    return f"{ctx.base}book?q={quote(text)}&tier={quote(tier.slug)}"


def paused_words(booking: Booking, pauses: Sequence[Pause], ctx: PageContext) -> str:
    """Returns the remaining time of a paused booking and when it resumes."""
    last = pauses[-1] if pauses else None
    if booking.state != State.PAUSED or last is None:
        return ""
    left = length_words(last.remaining_seconds or 0)
    own = sum(pause.relation not in ("", PauseRelation.IDLE) for pause in pauses)
    if own > 1:
        left = f"Paused {own} times by your organisation. {left}"
    if booking.starts is not None:
        ends = moment_words(last.ends_before, ctx.zone, ctx.now)
        if booking.awaits_check_in:
            return f"It can resume until {ends}; nothing is charged until then."
        unit = unit_of(booking.ask)
        return f"Resumes automatically as soon as {unit}s are free, until {ends} at the latest."
    if booking.awaits_check_in:
        return f"{left} left; nothing is charged until it resumes."
    return f"{left} left. It resumes automatically; nothing is charged until then."
