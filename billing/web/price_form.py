"""The form of a price book's draft: its fields, and the terms that it sends."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from django.http import QueryDict
from django.utils import timezone

from billing.peak_text import peak_hours_read, peak_hours_text
from billing.price_books import currency_latest
from billing.rules import amount_parse
from billing.services import DraftTerms, Peaks, price_param, setup_param
from billing.words import refusal_text
from tenants.models import GpuClass, Tier
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.local_times import local_time_read

Prices = Mapping[tuple[str, str], Decimal]
Profiles = Mapping[str, tuple[str, ...]]
"""The profiles of slices by class."""
PRICE_PLACES = 4
LOCAL = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True, slots=True)
class Field:
    """An input with its value and error."""

    name: str
    label: str
    value: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class PriceRow:
    """A class, or a profile of its slices, with its inputs by tier: the price, and the one in peak
    hours."""

    gpu_class: GpuClass
    profile: str
    pairs: tuple[tuple[Field, Field], ...]

    @property
    def faults(self) -> tuple[Field, ...]:
        """The fields with an error."""
        return tuple(field for pair in self.pairs for field in pair if field.error)


@dataclass(frozen=True, slots=True)
class PriceForm:
    """All fields of the form. `stray` is an error without a field."""

    tiers: tuple[Tier, ...]
    rows: tuple[PriceRow, ...]
    slices: tuple[PriceRow, ...]
    setup: tuple[Field, ...]
    peak_hours: Field
    peak_zone: Field
    valid_from: Field
    note: Field
    stray: str = ""

    @property
    def has_slices(self) -> bool:
        """Whether a price or an error of slices is to be seen."""
        pairs = (pair for row in self.slices for pair in row.pairs)
        return any(field.value or field.error for pair in pairs for field in pair)


def price_form(
    terms: DraftTerms, profiles: Profiles, typed: QueryDict | None, refusal: Refused | None
) -> PriceForm:
    """The form with the terms, or with what was typed and refused."""
    errors = {refusal.param or "": refusal.sentence} if refusal else {}
    known: set[str] = set()

    def field(name: str, label: str, value: str) -> Field:
        known.add(name)
        shown = value if typed is None else typed.get(name, "")
        return Field(name, label, shown, errors.get(name, ""))

    def price(gpu_class: GpuClass, profile: str, tier: Tier, *, is_peak: bool) -> Field:
        key = gpu_class.slug, tier.slug
        found = (terms.peaks.prices if is_peak else terms.prices).get(key)
        if profile:
            found = terms.slices.get((*key, profile), (None, None))[is_peak]
        name = price_param(*key, profile=profile, is_peak=is_peak)
        label = f"{gpu_class.label}{f' {profile}' if profile else ''}, {tier.name}"
        label += ", peak" if is_peak else ""
        return field(name, label, "" if found is None else price_text(found))

    tiers = tuple(Tier.objects.all())

    def row(gpu_class: GpuClass, profile: str) -> PriceRow:
        plain, peak = (
            [price(gpu_class, profile, tier, is_peak=is_peak) for tier in tiers] for is_peak in (False, True)
        )
        return PriceRow(gpu_class, profile, tuple(zip(plain, peak, strict=True)))

    classes = list(GpuClass.objects.all())
    zone, begin = _zone_and_begin(terms)
    form = PriceForm(
        tiers=tiers,
        rows=tuple(row(each, "") for each in classes),
        slices=tuple(row(each, name) for each in classes for name in profiles.get(each.slug, ())),
        setup=tuple(
            field(setup_param(each.slug), f"Set-up, {each.name}", _setup_text(terms, each.slug))
            for each in tiers
        ),
        peak_hours=field("peak_hours", "Peak hours", peak_hours_text(terms.peaks.hours)),
        peak_zone=field("peak_zone", "By the clocks of", zone),
        valid_from=field("valid_from", "Valid from", begin),
        note=field("note", "Note", terms.note),
    )
    if refusal is None or refusal.param in known:
        return form
    return replace(form, stray=refusal.sentence)


def _zone_and_begin(terms: DraftTerms) -> tuple[str, str]:
    """Returns the zone of the peak hours and the local begin of the version; empty without one."""
    hours = terms.peaks.hours
    zone = hours.zone if hours.weekly else str(timezone.get_current_timezone())
    begins = terms.valid_from
    return zone, "" if begins is None else timezone.localtime(begins).strftime(LOCAL)


def _price(text: str, name: str, currency: str) -> Decimal:
    return amount_parse(text, param=name, currency=currency, places=PRICE_PLACES)


def price_form_read(form: QueryDict, profiles: Profiles, before: DraftTerms) -> DraftTerms:
    """The terms that the form sends in place of those before. Raises Refused at the field of a fault."""
    prices, peaks, slices = {}, {}, {}
    currency = currency_latest()

    def price(name: str) -> Decimal | None:
        text = form.get(name, "").strip()
        return _price(text, name, currency) if text else None

    for gpu_class in GpuClass.objects.all():
        for tier in Tier.objects.all():
            key = gpu_class.slug, tier.slug
            name = price_param(*key)
            prices[key] = _price(form.get(name, ""), name, currency)
            if (peak := price(price_param(*key, is_peak=True))) is not None:
                peaks[key] = peak
            for profile in profiles.get(gpu_class.slug, ()):
                own = price(price_param(*key, profile=profile))
                peak = price(price_param(*key, profile=profile, is_peak=True))
                if own is not None:
                    slices[*key, profile] = own, peak
    fees = {tier: price(setup_param(tier)) for tier in Tier.objects.values_list("slug", flat=True)}
    setup = {tier: fee for tier, fee in fees.items() if fee}
    hours = peak_hours_read(form.get("peak_hours", ""), form.get("peak_zone", "").strip())
    begin = form.get("valid_from", "").strip()
    # As it is shown it stays, also in the hour that a clock change repeats.
    is_same = begin == _zone_and_begin(before)[1]
    valid_from = before.valid_from if is_same else _instant_read(begin)
    note = form.get("note", "").strip()
    return DraftTerms(prices, Peaks(hours, peaks), slices, setup, valid_from, note)


def _setup_text(terms: DraftTerms, tier: str) -> str:
    return price_text(terms.setup[tier]) if tier in terms.setup else ""


def price_text(price: Decimal) -> str:
    """Formats a price with two decimals, or four if needed."""
    return f"{price:.2f}" if price == round(price, 2) else str(price)


def _instant_read(text: str) -> datetime | None:
    """Reads a local time in the operator's zone; empty is the moment of the publication."""
    if not text.strip():
        return None
    return local_time_read(text, invalid("bad_date", refusal_text("bad_date"), "valid_from"))
