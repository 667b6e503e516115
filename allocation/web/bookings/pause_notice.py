"""What a pause says on pages: the notice that counts down, and the receipt. No database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from allocation.models import Booking, Pause
from allocation.reasons.catalogue import BY_CODE
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import duration_text, shape_text
from allocation.rules.states import State
from allocation.web.bookings.page_context import CostLine, PageContext
from allocation.web.parts.times import clock, length_words, moment_words
from billing.rules import money_text
from tenants.models import Tier
from tenants.platform.errors import Refused

MOVED_TOGETHER = BY_CODE["moved_together"].id
OWN_PAUSE = BY_CODE["own_pause"].id
METHODS = {
    "stop": "the node ends what runs, first with TERM, then with KILL",
    "signal": "the node kills what has not ended itself by then",
    "suspend": "the node freezes what runs, to go on later where it was",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pause: `done`, `cur` or empty for what comes."""

    name: str
    when: str
    mark: str


@dataclass(frozen=True, slots=True)
class BetterTierLink:
    """A booking that would not be paused for this claim, one click away."""

    words: str
    href: str


@dataclass(frozen=True, slots=True)
class PauseChoices:
    """What else the owner may do. `refused` says why there is no more time."""

    refused: Refused | None
    more_words: str
    offers: tuple[BetterTierLink, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """A pause that counts down. `left` of `whole` are seconds; `percent` of the grace is left."""

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
        """What is left, in front of the page's title; empty once it is over."""
        return f"({self.left_text}) " if self.left else ""

    @property
    def percent(self) -> int:
        """Of the grace, what is left."""
        return round(self.left * 100 / self.whole) if self.whole else 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A pause that is over, or the open one, line by line."""

    number: int
    headline: str
    why: str
    lines: tuple[CostLine, ...]
    basis: str


def notice_of(
    booking: Booking, pause: Pause, scene: PageContext, silent: Sequence[str] = ()
) -> Notice:
    """The words of the notice; `silent` are nodes that do not answer."""
    left = max(0, int((pause.deadline - scene.now).total_seconds()))
    is_saved, is_overdue = pause.acknowledged_at is not None, left == 0
    return Notice(
        label=booking.label,
        title=booking.name or booking.label,
        href=f"{scene.base}bookings/{booking.label}",
        left=left,
        whole=max(1, int((pause.deadline - pause.noticed_at).total_seconds())),
        left_text=f"{left // 60}:{left % 60:02}",
        at=clock(pause.deadline, scene.zone),
        who=_who(pause),
        why=pause.sentence,
        lost=_lost(booking, pause, scene),
        money=_money(booking, pause, scene),
        default=_default(booking, pause, scene),
        steps=_steps(booking, pause, scene),
        is_saved=is_saved,
        is_overdue=is_overdue,
        stuck=_stuck(silent) if is_saved or is_overdue else "",
    )


def unpausable_link(booking: Booking, tier: Tier, scene: PageContext) -> BetterTierLink:
    """The same again from the start in a tier that nobody pauses."""
    ask = AskDocument.from_json(booking.ask)
    return BetterTierLink(f"Book it where nothing is paused: {tier.name}", _book(ask, tier, scene))


def higher_tier_link(
    booking: Booking, tier: Tier, price: str, seconds: int, scene: PageContext
) -> BetterTierLink:
    """What is left of it, in a stronger tier, with the price of that."""
    ask = AskDocument.from_json(booking.ask)
    whole = max(60, seconds // 60 * 60)
    words = f"Go on in {tier.name}: {length_words(whole)} for {price}"
    return BetterTierLink(words, _book(ask, tier, scene, whole))


def receipt_of(booking: Booking, pause: Pause, scene: PageContext) -> Receipt:
    """The receipt, line by line."""
    began = moment_words(pause.noticed_at, scene.zone, scene.now)
    lines = [CostLine("Told", began), CostLine("Had time until", clock(pause.deadline, scene.zone))]
    for name, moment in (
        ("Everything saved", pause.acknowledged_at),
        ("Device proven empty", pause.emptied_at),
        ("Went on", pause.resumed_at),
        ("Taken back" if pause.withdrawn else "Ended instead", pause.ended_at),
    ):
        if moment is not None:
            lines.append(CostLine(name, moment_words(moment, scene.zone, scene.now)))
    if pause.emptied_at is not None:
        lost = length_words(pause.lost_seconds) if pause.lost_seconds else "nothing"
        lines.append(CostLine("Work to be done again", lost))
        credit = money_text(pause.credit, booking.currency)
        lines.append(CostLine("Not charged for it", credit))
        if pause.own:
            lines.append(CostLine("Caused by your own people", f"no credit (rule {OWN_PAUSE})"))
        charged = money_text(pause.charged, booking.currency)
        lines.append(CostLine("Charged for this run", charged, strong=True))
    return Receipt(
        number=pause.number,
        headline=_outcome(pause),
        why=f"{_who(pause)} {pause.sentence}",
        lines=tuple(lines),
        basis=f"Rule {pause.rule}, policy {pause.policy_version}, decision {pause.decision_id}",
    )


def _who(pause: Pause) -> str:
    name = f"{pause.beneficiary_label} of your organisation"
    if pause.rule == MOVED_TOGETHER:
        who = name if pause.beneficiary_label else "a waiting booking"
        return f"It is moved so that {who} can start (rule {pause.rule})."
    who = name if pause.beneficiary_label else "A stronger claim"
    return f"{who} needs its place (rule {pause.rule})."


def _lost(booking: Booking, pause: Pause, scene: PageContext) -> str:
    if pause.acknowledged_at is not None:
        return "Everything is saved: no work is done again."
    if booking.saved_at is None:
        seconds = (pause.noticed_at - pause.ready_at).total_seconds()
        ran = length_words(seconds) if seconds >= 60 else "less than a minute"
        return f"Never saved in this run: without a save, {ran} of work would be done again."
    ago = (scene.now - booking.saved_at).total_seconds()
    return f"Last saved {length_words(ago)} ago; only what came after would be done again."


def _money(booking: Booking, pause: Pause, scene: PageContext) -> str:
    since = clock(pause.noticed_at, scene.zone)
    if pause.own:
        return (
            "The claim is of your own people, so the run is charged until it is over and nothing "
            f"is credited (rule {OWN_PAUSE})."
        )
    return (
        f"Nothing is charged from {since} on, until it runs again. Work that has to be done "
        "again is credited by itself."
    )


def _default(booking: Booking, pause: Pause, scene: PageContext) -> str:
    if pause.acknowledged_at is not None:
        return "Its devices are being cleared."
    at = clock(pause.deadline, scene.zone)
    return (
        f"If nobody reacts, at {at} {METHODS[pause.method]}. The deadline does not move by itself."
    )


def _steps(booking: Booking, pause: Pause, scene: PageContext) -> tuple[Step, ...]:
    """Notice, saving, pause, handed over, resume: how far it is."""

    def at(moment: datetime | None) -> str:
        return clock(moment, scene.zone) if moment else ""

    resumes = booking.expected_start if pause.resumed_at is None else pause.resumed_at
    is_out = pause.emptied_at is not None
    is_leaving = pause.acknowledged_at is not None or pause.deadline <= scene.now
    reached = 4 if pause.resumed_at else 3 if is_out else 2 if is_leaving else 1
    later = f"≈ {moment_words(resumes, scene.zone, scene.now)}" if resumes else "when there is room"
    steps = (
        ("Notice", at(pause.noticed_at)),
        ("Saving", at(pause.acknowledged_at) or f"until {at(pause.deadline)}"),
        ("Pause", at(pause.emptied_at) or "on proof of empty"),
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
        f"{names} does not answer, so the device is not proven empty and nobody else gets it. "
        "Nothing is charged meanwhile."
    )


def _outcome(pause: Pause) -> str:
    if pause.resumed_at is not None:
        return "Paused and resumed"
    if pause.withdrawn:
        return "Not paused: the notice was taken back in time"
    if pause.ended_at is not None:
        return "Paused, then ended; the rest was given back"
    return "Paused" if pause.emptied_at is not None else "Being paused"


def _book(ask: AskDocument, tier: Tier, scene: PageContext, seconds: int = 0) -> str:
    shape = shape_text(ask.count, " or ".join(ask.classes), ask.profile)
    text = f"{shape} {duration_text(seconds or ask.duration)}"
    return f"{scene.base}book?q={quote(text)}&tier={quote(tier.slug)}"


def run_costs(booking: Booking, pauses: Sequence[Pause], scene: PageContext) -> list[CostLine]:
    """One line of the bill for each run that a pause ended."""
    found = []
    for pause in pauses:
        if pause.emptied_at is None:
            continue
        until = pause.noticed_at
        if pause.own:
            until = pause.acknowledged_at or pause.deadline
        began, told = clock(pause.ready_at, scene.zone), clock(until, scene.zone)
        name = f"Run {pause.number}, {began} – {told}"
        found.append(CostLine(name, money_text(pause.charged + pause.credit, booking.currency)))
        if pause.credit:
            credit = money_text(-pause.credit, booking.currency)
            found.append(CostLine("Credit, work to be done again", credit))
    return found


def paused_words(booking: Booking, pauses: Sequence[Pause], scene: PageContext) -> str:
    """What a paused booking has left, and how it goes on."""
    last = pauses[-1] if pauses else None
    if booking.state != State.PAUSED or last is None:
        return ""
    left = length_words(last.remaining_seconds or 0)
    own = sum(pause.own != "" for pause in pauses)
    if own > 1:
        left = f"Paused {own} times by your own people. {left}"
    if booking.starts is not None:
        ends = moment_words(last.ends_before, scene.zone, scene.now)
        return f"Goes on by itself as soon as there is room, until {ends} at the latest."
    return f"{left} left. It goes on by itself; nothing is charged until then."
