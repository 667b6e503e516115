"""Drafts of price books: an author writes one, and another operator publishes it, if there is
one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Self, TypeVar
from uuid import UUID

from django.db import transaction

from billing.models import Price, PriceBook, PriceDraft
from billing.price_books import CurrentPrice
from billing.rates import PeakHours, peak_hours
from billing.services.prices import (
    NO_PEAK_PRICES,
    Peaks,
    Prices,
    SetupFees,
    SlicePrices,
    price_book_check,
    price_book_publish,
    prices_kept,
)
from billing.words import refusal_text
from tenants.audit import platform_record
from tenants.models import OutboxMessage, Tenant
from tenants.outbox import outbox_put
from tenants.platform.errors import Refused, denied, missing, text_within
from tenants.queries import is_only_operator
from tenants.rules.operator_roles import Area

State = PriceDraft.State


@dataclass(frozen=True, slots=True)
class DraftTerms:
    """What a draft says: prices, peak hours, the first moment (None: its publication), a note."""

    prices: Prices
    peaks: Peaks = NO_PEAK_PRICES
    slices: SlicePrices = field(default_factory=dict)
    setup: SetupFees = field(default_factory=dict)
    valid_from: datetime | None = None
    note: str = ""

    @classmethod
    def of_book(cls, book: PriceBook | None) -> Self:
        """The terms of a book, to be changed."""
        if book is None:
            return cls({})
        return cls.of_rows(Price.objects.filter(book=book), book.hours, book.setups)

    @classmethod
    def of_rows(cls, rows: Iterable[Price], hours: PeakHours, setup: SetupFees) -> Self:
        """The terms of a book whose rows are read."""
        prices, peaks, slices = {}, {}, {}
        for row in rows:
            key = row.gpu_class_id, row.tier_id
            if row.profile:
                slices[*key, row.profile] = row.per_gpu_hour, row.peak_per_gpu_hour
                continue
            prices[key] = row.per_gpu_hour
            if row.peak_per_gpu_hour is not None:
                peaks[key] = row.peak_per_gpu_hour
        return cls(prices, Peaks(hours, peaks), slices, setup)

    @classmethod
    def of_draft(cls, draft: PriceDraft) -> Self:
        """The terms that a draft stores."""
        content = draft.content
        hours = peak_hours(content["zone"], content["weekly"])
        peaks = Peaks(hours, _prices_read(content["peaks"]))
        slices = {
            (gpu_class, tier, profile): (Decimal(price), None if peak is None else Decimal(peak))
            for gpu_class, tier, profile, price, peak in content.get("slices", ())
        }
        prices = _prices_read(content["prices"])
        setup = {tier: Decimal(fee) for tier, fee in content.get("setup", {}).items()}
        return cls(prices, peaks, slices, setup, draft.valid_from, draft.note)

    def current(self, currency: str) -> dict[tuple[str, str], CurrentPrice]:
        """The draft's prices by (class, tier), in the form of prices in force."""
        return {
            key: CurrentPrice(
                0,
                currency,
                price,
                self.peaks.prices.get(key, price),
                self.peaks.hours,
                {
                    profile: (own, own if peak is None else peak)
                    for (*of, profile), (own, peak) in self.slices.items()
                    if tuple(of) == key
                },
                self.setup.get(key[1], Decimal(0)),
            )
            for key, price in self.prices.items()
        }

    @property
    def content(self) -> dict[str, Any]:
        """The prices and peak hours as JSON."""
        return {
            "prices": [[*key, str(price)] for key, price in sorted(self.prices.items())],
            "peaks": [[*key, str(price)] for key, price in sorted(self.peaks.prices.items())],
            "slices": [
                [*key, str(price), None if peak is None else str(peak)]
                for key, (price, peak) in sorted(self.slices.items())
            ],
            "setup": {tier: str(fee) for tier, fee in sorted(self.setup.items()) if fee},
            "zone": self.peaks.hours.zone,
            "weekly": [list(each) for each in self.peaks.hours.weekly],
        }


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price that a draft changes. None: there was, or will be, no such price."""

    gpu_class: str
    tier: str
    old: Decimal | None
    new: Decimal | None
    is_peak: bool = False
    profile: str = ""
    is_setup: bool = False
    """Whether it is the set-up fee of the tier; then it has no class."""

    @property
    def percent(self) -> Decimal | None:
        """The change in percent, where both prices are known and the old one is not zero."""
        if self.old is None or self.new is None or not self.old:
            return None
        return 100 * (self.new - self.old) / self.old


def price_changes(old: DraftTerms, new: DraftTerms) -> list[PriceChange]:
    """What changes from one to the other, by class and tier. A missing peak price is the other
    price."""
    found = []
    for key in sorted(old.prices.keys() | new.prices.keys()):
        before, after = old.prices.get(key), new.prices.get(key)
        peaks = old.peaks.prices.get(key, before), new.peaks.prices.get(key, after)
        if before != after:
            found.append(PriceChange(*key, before, after))
        if peaks[0] != peaks[1] and peaks != (before, after):
            found.append(PriceChange(*key, *peaks, is_peak=True))
    for gpu_class, tier, profile in sorted(old.slices.keys() | new.slices.keys()):
        both = [each.slices.get((gpu_class, tier, profile), (None, None)) for each in (old, new)]
        for is_peak in (False, True):
            before, after = (pair[is_peak] for pair in both)
            if before != after:
                found.append(PriceChange(gpu_class, tier, before, after, is_peak, profile))
    return found + [
        PriceChange("", tier, old.setup.get(tier), new.setup.get(tier), is_setup=True)
        for tier in sorted(old.setup.keys() | new.setup.keys())
        if old.setup.get(tier) != new.setup.get(tier)
    ]


def draft_changes(draft: PriceDraft) -> list[PriceChange]:
    """What a draft changes of the version that it was written on."""
    return price_changes(DraftTerms.of_book(draft.base), DraftTerms.of_draft(draft))


def price_draft_create(*, author_id: int, terms: DraftTerms | None, now: datetime) -> PriceDraft:
    """Writes a draft. Without terms it begins with the prices of the latest version.

    Raises:
        Refused: as `price_book_publish`, for terms that could not be published.
    """
    base = PriceBook.objects.order_by("-version").first()
    if terms is not None:
        _checked(terms, now)
    terms = terms or DraftTerms.of_book(base)
    draft = PriceDraft(author_id=author_id, base=base, created_at=now)
    _written(draft, terms, now)
    draft.save(force_insert=True)
    _log(draft, author_id, "prices.drafted", now, before={})
    return draft


def price_draft_save(*, author_id: int, draft_id: UUID, terms: DraftTerms, now: datetime) -> PriceDraft:
    """Replaces what the draft says.

    Raises:
        Refused: `not_found`, `draft_decided`, `not_allowed` for others than its author, or as
            `price_book_publish`.
    """
    _checked(terms, now)
    return _changed(author_id, draft_id, lambda _: terms, now)


def price_draft_rebase(*, author_id: int, draft_id: UUID, now: datetime) -> PriceDraft:
    """Brings the draft onto the latest version: what it changed stays, all else is as there.

    Raises:
        Refused: `not_found`, `draft_decided`, or `not_allowed` for others than its author.
    """
    latest = PriceBook.objects.order_by("-version").first()

    def rebased(draft: PriceDraft) -> DraftTerms:
        base, mine = DraftTerms.of_book(draft.base), DraftTerms.of_draft(draft)
        draft.base = latest
        return _merged(base, mine, DraftTerms.of_book(latest))

    return _changed(author_id, draft_id, rebased, now)


def price_draft_discard(*, operator_id: int, draft_id: UUID, now: datetime) -> PriceDraft:
    """Discards the draft. Any operator may do that.

    Raises:
        Refused: `not_found` or `draft_decided`.
    """
    with transaction.atomic():
        draft = _locked(draft_id)
        before = _kept(draft)
        _decide(draft, State.DISCARDED, operator_id, now)
        _log(draft, operator_id, "prices.draft_discarded", now, before=before)
    return draft


def price_draft_publish(*, publisher_id: int, draft_id: UUID, revision: int, now: datetime) -> PriceBook:
    """Publishes the draft as the next version; `revision` is the one that the publisher has read.

    Raises:
        Refused: `not_found`, `draft_decided`, `second_person_needed` for its author if there is
            another operator, `draft_changed` if it has another revision by now, `draft_outdated`
            if it was written on an earlier version, or as `price_book_publish`.
    """
    with transaction.atomic():
        draft = _locked(draft_id)
        if draft.author_id == publisher_id and not is_only_operator(publisher_id, Area.MONEY, now):
            raise Refused(
                "second_person_needed",
                refusal_text("second_person_needed"),
                "conflict",
                owner="operator",
            )
        if draft.revision != revision:
            raise Refused(
                "draft_changed",
                refusal_text("draft_changed"),
                "conflict",
                param="revision",
                numbers={"revision": draft.revision},
            )
        _is_current_check(draft)
        terms = DraftTerms.of_draft(draft)
        book = price_book_publish(
            actor_id=publisher_id,
            valid_from=terms.valid_from or now,
            prices=terms.prices,
            peaks=terms.peaks,
            slices=terms.slices,
            setup=terms.setup,
            note=terms.note,
            now=now,
        )
        draft.book = book
        _decide(draft, State.PUBLISHED, publisher_id, now)
        _notify_tenants(book, now)
    return book


def is_outdated(draft: PriceDraft) -> bool:
    """Whether another version was published after the draft was written or rebased."""
    latest = PriceBook.objects.order_by("-version").values_list("version", flat=True).first()
    return draft.base_id != latest


def _is_current_check(draft: PriceDraft) -> None:
    if is_outdated(draft):
        raise Refused(
            "draft_outdated",
            refusal_text("draft_outdated"),
            "conflict",
            owner="operator",
        )


def _checked(terms: DraftTerms, now: datetime) -> None:
    price_book_check(
        valid_from=terms.valid_from or now,
        prices=terms.prices,
        peaks=terms.peaks,
        slices=terms.slices,
        setup=terms.setup,
        now=now,
    )


def _changed(
    author_id: int, draft_id: UUID, terms_of: Callable[[PriceDraft], DraftTerms], now: datetime
) -> PriceDraft:
    with transaction.atomic():
        draft = _locked(draft_id)
        if draft.author_id != author_id:
            raise denied(refusal_text("draft_of_another"))
        before = _kept(draft)
        draft.revision += 1
        _written(draft, terms_of(draft), now)
        draft.save(update_fields=["base", "revision", "valid_from", "note", "content", "changed_at"])
        _log(draft, author_id, "prices.draft_changed", now, before=before)
    return draft


def _written(draft: PriceDraft, terms: DraftTerms, now: datetime) -> None:
    draft.content, draft.valid_from = terms.content, terms.valid_from
    draft.note, draft.changed_at = text_within(terms.note, 200, "note"), now


def _locked(draft_id: UUID) -> PriceDraft:
    draft = PriceDraft.objects.select_for_update().filter(id=draft_id).first()
    if draft is None:
        raise missing("draft")
    if draft.state != State.OPEN:
        state = draft.get_state_display().lower()
        raise Refused("draft_decided", refusal_text("draft_decided", state=state), "conflict")
    return draft


def _decide(draft: PriceDraft, state: State, operator_id: int, now: datetime) -> None:
    draft.state, draft.decided_by_id, draft.decided_at = state, operator_id, now
    draft.save(update_fields=["state", "decided_by", "decided_at", "book"])


def _merged(base: DraftTerms, mine: DraftTerms, theirs: DraftTerms) -> DraftTerms:
    """`theirs` with what differs between `base` and `mine`."""
    hours = theirs.peaks.hours if mine.peaks.hours == base.peaks.hours else mine.peaks.hours
    peaks = _prices_merged(base.peaks.prices, mine.peaks.prices, theirs.peaks.prices)
    return replace(
        mine,
        prices=_prices_merged(base.prices, mine.prices, theirs.prices),
        peaks=Peaks(hours, peaks),
        slices=_prices_merged(base.slices, mine.slices, theirs.slices),
        setup=_prices_merged(base.setup, mine.setup, theirs.setup),
    )


K = TypeVar("K")
V = TypeVar("V")


def _prices_merged(base: Mapping[K, V], mine: Mapping[K, V], theirs: Mapping[K, V]) -> dict[K, V]:
    found = {}
    for key in base.keys() | mine.keys() | theirs.keys():
        source = theirs if base.get(key) == mine.get(key) else mine
        if (price := source.get(key)) is not None:
            found[key] = price
    return found


def _prices_read(rows: list[list[str]]) -> Prices:
    return {(gpu_class, tier): Decimal(price) for gpu_class, tier, price in rows}


def _kept(draft: PriceDraft) -> dict[str, Any]:
    """What a draft says, for the log."""
    terms = DraftTerms.of_draft(draft)
    valid_from = "publication" if terms.valid_from is None else terms.valid_from.isoformat()
    prices = prices_kept(terms.prices, terms.peaks, terms.slices, terms.setup)
    said = {"valid_from": valid_from, "note": draft.note, "state": draft.state}
    return prices | said | {"revision": draft.revision, "on_version": draft.base_id}


def _notify_tenants(book: PriceBook, now: datetime) -> None:
    payload = {
        "version": book.version,
        "valid_from": book.valid_from.isoformat(),
        "note": book.note,
    }
    tenants = Tenant.objects.order_by("slug").values_list("id", flat=True)
    outbox_put(
        [
            OutboxMessage(tenant_id=tenant_id, kind="price_book.published", payload=payload, created=now)
            for tenant_id in tenants
        ]
    )


def _log(draft: PriceDraft, actor_id: int, action: str, now: datetime, before: Mapping[str, Any]) -> None:
    platform_record(
        operator_id=actor_id,
        action=action,
        target=("price_draft", draft.id),
        now=now,
        before=before,
        after=_kept(draft),
    )
