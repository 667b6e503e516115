"""A quote's options as people book them: text, price, speed, and the chance of a pause."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from allocation.queries.bookings.outcomes import pause_record
from allocation.queries.fleet.catalogue import ask_units, class_gigabytes
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import document_text
from allocation.rules.nodes.suspending import why_not_suspendable
from allocation.rules.pause_risk import PauseRecord, Risk
from allocation.services.quotes.quote_losses import losses
from allocation.services.snapshot.snapshot import instant, seconds
from allocation.solver import QUARTER, UNITS_PER_GPU, Option
from billing.queries import CurrentPrice, current_prices
from billing.rules import LEDGER_STEP, cost_of
from tenants.models import Tier

DAY = 86_400
QUARTERS = range(DAY // QUARTER)
REFERENCE_SPEED = 1000
KIND_NOTES = {
    "without_nvlink": "without NVLink between its GPUs",
    "unpinned": "anywhere, without the pin",
    "split": "apart: its GPUs need not lie together",
    "fewer": "if the work is shared evenly among its GPUs",
}


WITHIN_GUARANTEE = "within your guarantee: may start sooner, if others give back what they borrow"
"""Follows from the own organisation's quota alone: whether anybody borrows is not known here."""


@dataclass(frozen=True, slots=True)
class QuoteOption:
    """One way to get it. `request` is the line of text that books exactly this.

    `pause_risk` and `speed` (beside the ask; None: nobody has compared) are thousandths;
    `pause_basis` is what the risk was counted from, empty for what is never paused. `pauses` is how
    many running bookings would be asked to leave for it.
    """

    kind: str
    tier: str
    gpu_class: str
    profile: str | None
    count: int
    share: int | None
    starts: datetime
    ends: datetime
    nodes: tuple[str, ...]
    price: Decimal
    currency: str
    ask: AskDocument
    request: str
    pause_risk: int
    pause_basis: str
    speed: int | None
    pauses: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Market:
    """What options are told by at an instant: prices in force, what has become of the
    organisation's earlier bookings, and the memory of a GPU of each class in GB."""

    now: datetime
    prices: dict[tuple[str, str], CurrentPrice]
    record: PauseRecord = field(repr=False)
    sizes: dict[str, int]

    @classmethod
    def read(cls, now: datetime) -> "Market":
        """As things are at `now`."""
        return cls(now, current_prices(now), pause_record(), class_gigabytes())

    def rates(self, tier: str) -> dict[str, int]:
        """Per GPU-hour by class, in steps of the ledger."""
        return {
            gpu_class: int(price.per_gpu_hour / LEDGER_STEP)
            for (gpu_class, in_tier), price in self.prices.items()
            if in_tier == tier
        }

    def risks(self, tier: Tier) -> dict[tuple[str, bool, int], int]:
        """Chances of a pause in thousandths, as the solver's question wants them."""
        if not tier.pausable:
            return {}
        classes = {gpu_class for gpu_class, in_tier in self.prices if in_tier == tier.slug}
        return {
            (gpu_class, borrowed, quarter): self.record.risk(
                tier.slug, gpu_class, borrowed=borrowed, quarter=quarter
            ).thousandths
            for gpu_class in sorted(classes)
            for borrowed in (False, True)
            for quarter in QUARTERS
        }

    def risk_of(self, option: Option, tier: Tier) -> Risk | None:
        """The risk behind an option's figure; None in a tier that is never paused."""
        if not tier.pausable:
            return None
        quarter = option.starts % DAY // QUARTER
        return self.record.risk(
            tier.slug, option.gpu_class, borrowed=option.borrowed > 0, quarter=quarter
        )


def quote_option(
    option: Option,
    tiers: tuple[Tier, Tier],
    asked: AskDocument,
    zone: ZoneInfo,
    market: Market,
) -> QuoteOption | None:
    """The option with its price and its words; None when nobody could pay or make it. `tiers` are
    its own and the one that was asked for."""
    tier = tiers[0]
    price = market.prices.get((option.gpu_class, tier.slug))
    ask = _ask_of(option, asked)
    units = ask_units(ask).get(option.gpu_class)
    if price is None or units is None:
        return None
    risk = market.risk_of(option, tier)
    requested_start = seconds(max(filter(None, (asked.starts, asked.not_before, market.now))))
    return QuoteOption(
        kind=option.kind,
        tier=tier.slug,
        gpu_class=option.gpu_class,
        profile=option.profile,
        count=option.count,
        share=option.share,
        starts=instant(option.starts),
        ends=instant(option.ends),
        nodes=option.places_hint,
        price=cost_of(per_gpu_hour=price.per_gpu_hour, units=units, seconds=ask.duration),
        currency=price.currency,
        ask=ask,
        request=document_text(ask, zone),
        pause_risk=risk.thousandths if risk else 0,
        pause_basis=risk.basis if risk else "",
        speed=option.speed,
        pauses=sum(count for _, count in option.pauses),
        notes=(
            *losses(option, asked, tiers, market.sizes),
            *_notes(option, tier, is_late=option.starts > requested_start),
            *_pause_notes(option, tier),
        ),
    )


def _pause_notes(option: Option, tier: Tier) -> Iterator[str]:
    """That a pause will not suspend it, although its tier says so."""
    if not tier.pausable or tier.pause_method != Tier.PauseMethod.SUSPEND:
        return
    is_divided = option.profile is not None or option.share is not None
    why = why_not_suspendable(devices=option.count, is_divided=is_divided)
    if why is not None:
        yield f"stopped, not suspended, if it is paused: {why}"


def _notes(option: Option, tier: Tier, *, is_late: bool) -> Iterator[str]:
    """`is_late`: it starts after the wish."""
    yield from map(_pauses_text, option.pauses)
    if option.share is not None:
        yield "Shared with others, not isolated"
    if option.kind in KIND_NOTES:
        yield KIND_NOTES[option.kind]
    if option.speed is None:
        yield "speed not compared"
    elif option.speed != REFERENCE_SPEED:
        yield f"{option.speed / 1000:.2g}× as fast"
    if option.borrowed:
        own, borrowed = (
            f"{units / UNITS_PER_GPU:.3g}"
            for units in (option.units - option.borrowed, option.borrowed)
        )
        yield f"{own} own + {borrowed} borrowed"
    elif is_late and tier.counts_against_guarantee:
        yield WITHIN_GUARANTEE
    if tier.description:
        yield tier.description


def _pauses_text(leave: tuple[str, int]) -> str:
    """Only the own organisation's work is known to a quote, so only that is asked to leave."""
    rule, count = leave
    bookings = f"{count} running booking{'s' * (count != 1)} of your organisation"
    why = "in a lower tier" if rule == "higher_tier" else "on borrowed GPUs"
    return f"{bookings} {why} will be asked to leave"


def _ask_of(option: Option, asked: AskDocument) -> AskDocument:
    """The ask that books this option: as flexible as it was, unless another window is offered."""
    together, required = asked.together, asked.required
    if option.kind == "split" or option.count == 1:
        together, required = "any", False
    elif option.kind == "without_nvlink" or (option.profile and together == "domain"):
        together = "node"
    is_moved = option.kind == "later"
    past_deadline = asked.deadline is not None and option.ends > seconds(asked.deadline)
    return AskDocument(
        count=option.count,
        classes=(option.gpu_class,),
        profile=option.profile,
        share=option.share,
        cores=asked.cores,
        memory=asked.memory,
        together=together,
        required=required,
        duration=option.ends - option.starts,
        starts=instant(option.starts) if is_moved and asked.starts else asked.starts,
        not_before=asked.not_before,
        deadline=None if past_deadline else asked.deadline,
        workload=asked.workload,
        pin=() if option.kind == "unpinned" else asked.pin,
    )
