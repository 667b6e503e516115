"""The form of a price book's draft: its fields, and the terms that it sends."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.http import QueryDict
from django.utils import timezone

from billing.peak_text import peak_hours_read, peak_hours_text
from billing.rules import amount_parse
from billing.services import DraftTerms, Peaks, price_param
from tenants.models import GpuClass, Tier
from tenants.platform.errors import Refused, invalid

Prices = Mapping[tuple[str, str], Decimal]
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
    """A class with its inputs by tier: the price, and the one in peak hours."""

    gpu_class: GpuClass
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
    peak_hours: Field
    peak_zone: Field
    valid_from: Field
    note: Field
    stray: str = ""


def price_form(terms: DraftTerms, typed: QueryDict | None, refusal: Refused | None) -> PriceForm:
    """The form with the terms, or with what was typed and refused."""
    errors = {refusal.param or "": refusal.sentence} if refusal else {}
    known: set[str] = set()

    def field(name: str, label: str, value: str) -> Field:
        known.add(name)
        shown = value if typed is None else typed.get(name, "")
        return Field(name, label, shown, errors.get(name, ""))

    def price(gpu_class: GpuClass, tier: Tier, *, is_peak: bool) -> Field:
        prices = terms.peaks.prices if is_peak else terms.prices
        found = prices.get((gpu_class.slug, tier.slug))
        name = price_param(gpu_class.slug, tier.slug, is_peak=is_peak)
        label = f"{gpu_class.label}, {tier.name}{', peak' if is_peak else ''}"
        return field(name, label, "" if found is None else price_text(found))

    tiers = tuple(Tier.objects.all())
    rows = tuple(
        PriceRow(
            gpu_class,
            tuple(
                (price(gpu_class, tier, is_peak=False), price(gpu_class, tier, is_peak=True))
                for tier in tiers
            ),
        )
        for gpu_class in GpuClass.objects.all()
    )
    hours = terms.peaks.hours
    zone = hours.zone if hours.weekly else str(timezone.get_current_timezone())
    begins = terms.valid_from
    begin = "" if begins is None else timezone.localtime(begins).strftime(LOCAL)
    form = PriceForm(
        tiers=tiers,
        rows=rows,
        peak_hours=field("peak_hours", "Peak hours", peak_hours_text(hours)),
        peak_zone=field("peak_zone", "By the clocks of", zone),
        valid_from=field("valid_from", "Valid from", begin),
        note=field("note", "Note", terms.note),
    )
    if refusal is None or refusal.param in known:
        return form
    return PriceForm(
        form.tiers, form.rows, form.peak_hours, form.peak_zone, form.valid_from, form.note,
        refusal.sentence,
    )  # fmt: skip


def price_form_read(form: QueryDict) -> DraftTerms:
    """The terms that the form sends. Raises Refused at the field of a fault."""
    prices, peaks = {}, {}
    for gpu_class in GpuClass.objects.all():
        for tier in Tier.objects.all():
            key = gpu_class.slug, tier.slug
            name = price_param(*key)
            prices[key] = amount_parse(form.get(name, ""), param=name, places=PRICE_PLACES)
            name = price_param(*key, is_peak=True)
            if form.get(name, "").strip():
                peaks[key] = amount_parse(form.get(name, ""), param=name, places=PRICE_PLACES)
    hours = peak_hours_read(form.get("peak_hours", ""), form.get("peak_zone", "").strip())
    valid_from = _instant_read(form.get("valid_from", ""))
    return DraftTerms(prices, Peaks(hours, peaks), valid_from, form.get("note", "").strip())


def price_text(price: Decimal) -> str:
    """Formats a price with two decimals, or four if needed."""
    return f"{price:.2f}" if price == round(price, 2) else str(price)


def _instant_read(text: str) -> datetime | None:
    """Reads a local time in the operator's zone; empty is the moment of the publication."""
    if not text.strip():
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise invalid(
            "bad_date", "Enter date and time as 2026-12-01T00:00.", "valid_from"
        ) from None
    return found if timezone.is_aware(found) else timezone.make_aware(found)
