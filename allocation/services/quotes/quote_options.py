"""The options of a quote: text, price, speed, and the risk of a pause."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from allocation.queries.bookings.outcomes import pause_record, start_history
from allocation.queries.fleet.catalogue import ask_units, class_gigabytes
from allocation.queries.fleet.loans import longest_loan
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.shape import profile_gigabytes
from allocation.rules.ask.line.text import document_text
from allocation.rules.ask.words.times import duration_words
from allocation.rules.nodes.suspending import why_not_suspendable
from allocation.rules.pause_risk import PauseRecord, Risk
from allocation.rules.start_range import start_range
from allocation.services.bookings.checks.admission import Admission
from allocation.services.bookings.checks.offers import most_of, priced_from, rate_for, rate_of_all
from allocation.services.snapshot.snapshot import instant, seconds
from allocation.words.queue import mover_text
from allocation.words.quotes import note_text
from billing.price_books import CurrentPrice, PriceShelf
from billing.rates import Rate
from billing.rules import LEDGER_STEP, UNITS_PER_GPU, ledger_amount
from solver import QUARTER, Option, Shape
from solver.model.inputs import Strength
from tenants.models import Tier
from tenants.platform.nouns import unit_text

DAY, HOUR = 86_400, 3600
QUARTERS = range(DAY // QUARTER)
REFERENCE_SPEED = 1000
WHOLE_SHARE = 1_000
# Kinds of options that have a note of their own.
KIND_NOTES = ("without_nvlink", "unpinned", "anywhere", "split", "fewer")


@dataclass(frozen=True, slots=True)
class GroupLine:
    """The part of a price that one group of a mixed option has."""

    gpu_class: str
    profile: str | None
    count: int
    price_per_hour: Decimal
    price: Decimal


@dataclass(frozen=True, slots=True)
class QuoteOption:
    """One option. `request` is the text that books exactly this.

    `pause_risk` and `speed` (compared with the request; None: unknown) are thousandths.
    `pause_basis` says what the risk was computed from; empty if it is never paused. `pauses` is the
    number of running bookings that would be paused for it. `latest` is the latest start that is to
    be expected by its `strength`. `most` is the price at another start with more peak hours; both
    have `setup`, the fee of the first start. A mixed option has `lines`, one for each group.
    `to_accept` is the id of a text that its tier demands and the person has not accepted; a note
    says so. Of an array, `last_end` estimates the end of its last run, with at most `runs_at_once`.
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
    most: Decimal
    setup: Decimal
    rate: Rate
    currency: str
    ask: AskDocument
    request: str
    pause_risk: int | None
    pause_basis: str
    speed: int | None
    pauses: int
    strength: Strength
    latest: datetime
    notes: tuple[str, ...]
    lines: tuple[GroupLine, ...] = ()
    to_accept: str = ""
    last_end: datetime | None = None
    runs_at_once: int | None = None

    @property
    def sentence(self) -> str:
        """Whose bookings could make the start later, once it is booked."""
        return mover_text(self.strength, self.gpu_class)


@dataclass(frozen=True, slots=True)
class Market:
    """What options are priced and rated by at a time.

    Present prices, pauses of the organisation's earlier bookings, and GPU memory by class in GB.
    """

    now: datetime
    shelf: PriceShelf = field(repr=False)
    record: PauseRecord = field(repr=False)
    sizes: dict[str, int]
    histories: dict[str, list[tuple[int, int]]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, now: datetime) -> "Market":
        """Reads it as of `now`, inside the tenant's transaction."""
        return cls(now, PriceShelf.read(now), pause_record(), class_gigabytes())

    @property
    def prices(self) -> Mapping[tuple[str, str], CurrentPrice]:
        """Returns the present prices, by (class, tier)."""
        return self.shelf.on(self.now)

    def history(self, tier: str) -> list[tuple[int, int]]:
        """Returns how late past starts of a tier were; read once."""
        if tier not in self.histories:
            self.histories[tier] = start_history(tier)
        return self.histories[tier]

    def latest_start(self, option: Option, tier: str) -> datetime:
        """Returns the latest start that is to be expected of an option by its strength."""
        is_expected = option.strength == "expected"
        late = self.history(tier) if is_expected else ()
        return start_range(instant(option.starts), self.now, late, is_expected=is_expected).latest

    def costs(self, admission: Admission) -> dict[str, Decimal]:
        """Returns the most that a request costs in its tier, by class, where there is a price."""
        prices = self.shelf.on(priced_from(admission.ask, self.now))
        return {
            name: most_of(
                rate_for(prices[name, admission.tier.slug], admission.ask.on(name), units),
                admission.ask.starts,
                admission.seconds_on(name),
            )
            for name, units in admission.units.items()
            if (name, admission.tier.slug) in prices
        }

    def rates(self, tier: str, admission: Admission) -> dict[str, int]:
        """Returns prices per GPU-hour by class, in steps of the ledger: those of the request's
        length with the most peak hours that it can have."""
        found, ask = {}, admission.ask
        for (gpu_class, in_tier), price in self.shelf.on(priced_from(ask, self.now)).items():
            if in_tier == tier:
                length = admission.seconds_on(gpu_class)
                units = admission.units.get(gpu_class, UNITS_PER_GPU)
                part = ask.on(gpu_class)
                own = price.of(part.profile, part.count, units).rate(UNITS_PER_GPU)
                cost = most_of(own, ask.starts, length)
                found[gpu_class] = int(cost * HOUR / length / LEDGER_STEP)
        return found

    def risks(self, tier: Tier) -> dict[tuple[str, bool, int], int]:
        """Returns the risks of a pause in thousandths, as the solver takes them."""
        if not tier.pausable:
            return {}
        classes = {gpu_class for gpu_class, in_tier in self.prices if in_tier == tier.slug}
        return {
            (gpu_class, borrowed, quarter): self.record.risk(
                tier.slug, gpu_class, borrowed=borrowed, quarter=quarter
            ).weighed
            for gpu_class in sorted(classes)
            for borrowed in (False, True)
            for quarter in QUARTERS
        }

    def risk_of(self, option: Option, tier: Tier) -> Risk | None:
        """Returns the risk of an option; None in a tier that is never paused. Of several classes
        the highest counts; it is unknown if one of them is."""
        if not tier.pausable:
            return None
        quarter, borrowed = option.starts % DAY // QUARTER, option.borrowed > 0
        classes = (option.gpu_class, *(each.classes[0] for each in option.groups))
        risks = (self.record.risk(tier.slug, name, borrowed=borrowed, quarter=quarter) for name in classes)
        return max(risks, key=lambda risk: (risk.thousandths is None, risk.weighed))


def quote_option(
    option: Option, tiers: tuple[Tier, Tier], asked: AskDocument, zone: ZoneInfo, market: Market
) -> QuoteOption | None:
    """Returns the option with its price and notes; None if it has no price or can't be made.

    `tiers` are its own and the requested one.
    """
    tier = tiers[0]
    ask = _ask_of(option, asked)
    price, rates = _price_and_rates(option, ask, tier, market)
    if price is None or len(rates) < len(ask.all_classes):
        return None
    starts = instant(option.starts)
    rate = rate_of_all(rates) if ask.groups else rates[0]
    risk = market.risk_of(option, tier)
    requested_start = seconds(max(filter(None, (asked.starts, asked.not_before, market.now))))
    notes = (
        *losses(option, asked, tiers, market.sizes),
        *_victim_notes(option),
        *_notes(option, tier, is_late=option.starts > requested_start),
        *_mixed_note(option, tier),
        *_method_note(option, tier),
    )
    return QuoteOption(
        kind=option.kind,
        tier=tier.slug,
        gpu_class=option.gpu_class,
        profile=option.profile,
        count=option.count,
        share=option.share,
        starts=starts,
        ends=instant(option.ends),
        nodes=option.places_hint,
        price=price.setup + rate.cost(rate.between(starts, starts + timedelta(seconds=ask.duration))),
        most=price.setup + most_of(rate, ask.starts, ask.duration),
        setup=price.setup,
        rate=rate,
        currency=price.currency,
        ask=ask,
        request=document_text(ask, zone),
        pause_risk=risk.thousandths if risk else 0,
        pause_basis=risk.basis if risk else "",
        speed=option.speed,
        pauses=sum(count for _, count in option.pauses),
        strength=option.strength,
        latest=market.latest_start(option, tier.slug),
        lines=tuple(_lines(ask, rates)) if ask.groups else (),
        notes=tuple(unit_text(each, option.gpu_class) for each in notes),
    )


def estimated(option: QuoteOption, market: Market) -> QuoteOption:
    """Returns the option with a start that nothing reserves: that of a booking that waits for
    others until they are over."""
    late = start_range(option.starts, market.now, market.history(option.tier)).latest
    notes = (note_text("after_parents"), *option.notes)
    return replace(option, strength="expected", latest=max(option.latest, late), notes=notes)


def _price_and_rates(
    option: Option, ask: AskDocument, tier: Tier, market: Market
) -> tuple[CurrentPrice | None, list[Rate]]:
    """Returns the price of its class, and the rates of all of its classes that have a price."""
    prices, units = market.shelf.on(priced_from(ask, market.now)), ask_units(ask)
    found = {name: prices.get((name, tier.slug)) for name in ask.all_classes}
    rates = [
        rate_for(price, ask.on(name), units[name]) for name, price in found.items() if price and name in units
    ]
    return found[option.gpu_class], rates


def _lines(ask: AskDocument, rates: Sequence[Rate]) -> Iterator[GroupLine]:
    """Yields the plain price of each group."""
    for group, rate in zip(ask.every_group, rates, strict=True):
        price = rate.plain * ask.duration / 3600
        yield GroupLine(group.gpu_class, group.profile, group.count, rate.plain, ledger_amount(price))


def losses(
    option: Option, asked: AskDocument, tiers: tuple[Tier, Tier], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Yields notes of what an option has less than the request.

    `tiers` are the option's and the requested one; `sizes` are GB by class.
    """
    if option.count < asked.count:
        code = "fewer_slices" if option.profile else "fewer_gpus"
        yield note_text(code, count=option.count, asked=asked.count)
    if asked.groups:
        yield from _pausable_note(tiers)
        return
    shape = option.profile if option.share is None else option.share
    least = min(_gigabytes(asked.shape, name, sizes) for name in asked.classes)
    memory = _gigabytes(shape, option.gpu_class, sizes)
    if memory < least:
        yield note_text("less_memory", memory=f"{memory:g}", asked=f"{least:g}")
    yield from _pausable_note(tiers)


def _pausable_note(tiers: tuple[Tier, Tier]) -> Iterator[str]:
    offered, requested = tiers
    if offered.pausable and not requested.pausable:
        yield note_text("pausable")


def _mixed_note(option: Option, tier: Tier) -> Iterator[str]:
    """Yields how a booking of several classes stands in a tier that may be paused."""
    if option.groups and tier.pausable:
        yield note_text("mixed_pausable")


def _gigabytes(shape: Shape, gpu_class: str, sizes: Mapping[str, int]) -> float:
    """Returns the GPU memory of one device."""
    whole = sizes.get(gpu_class, 0)
    if isinstance(shape, str):
        return profile_gigabytes(shape) or whole
    return whole if shape is None else whole * shape / WHOLE_SHARE


def _notes(option: Option, tier: Tier, *, is_late: bool) -> Iterator[str]:
    """Yields the other notes. `is_late`: the option starts after the requested start."""
    if option.share is not None:
        yield note_text("shared")
    if option.kind in KIND_NOTES:
        yield note_text(option.kind)
    if option.speed is None:
        yield note_text("speed_unknown")
    elif option.speed != REFERENCE_SPEED:
        yield note_text("speed", speed=f"{option.speed / 1000:.2g}")
    if option.borrowed:
        yield from _loan_notes(option, tier)
    elif is_late and tier.counts_against_guarantee and not (option.groups and tier.pausable):
        # The own quota implies this; whether others borrow is not known here.
        yield note_text("within_guarantee")
    if tier.description:
        yield tier.description


def _loan_notes(option: Option, tier: Tier) -> Iterator[str]:
    code = "borrowed_back" if tier.pausable else "borrowed"
    yield note_text(code, all=option.units, borrowed=option.borrowed)
    if tier.counts_against_guarantee and not tier.pausable:
        yield note_text("on_loan", longest=duration_words(longest_loan(tier.slug)))


def _victim_notes(option: Option) -> Iterator[str]:
    """Yields notes of running bookings that are paused for the option.

    A quote knows only the own organisation's bookings, so only these are paused.
    """
    for rule, count in option.pauses:
        is_lower = rule == "higher_tier"
        yield note_text("pauses_lower_tier" if is_lower else "pauses_borrowed", count=count)


def _method_note(option: Option, tier: Tier) -> Iterator[str]:
    """Yields a note if a pause can't suspend the option although its tier says so."""
    if not tier.pausable or tier.pause_method != Tier.PauseMethod.SUSPEND:
        return
    is_divided = option.profile is not None or option.share is not None
    devices = option.count + sum(each.count for each in option.groups)
    why = why_not_suspendable(devices=devices, is_divided=is_divided)
    if why is not None:
        yield note_text("stopped", why=why)


def _ask_of(option: Option, asked: AskDocument) -> AskDocument:
    """Returns the ask that books this option, as flexible as the request if possible."""
    together, required = asked.together, asked.required
    if option.kind == "split" or option.count == 1:
        together, required = "any", False
    elif option.kind == "without_nvlink" or (option.profile and together == "domain"):
        together = "node"
    is_moved = option.kind == "later"
    where = {} if option.kind == "anywhere" else asked.where_fields
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
        groups=asked.groups,
        data=asked.data,
        host=asked.host,
        most_cost=asked.most_cost,
        ends_in=asked.ends_in,
        **where,
    )
