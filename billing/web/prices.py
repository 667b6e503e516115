"""The price pages: current prices for everyone, and the operator's next version."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from billing.models import PriceBook
from billing.peak_text import peak_hours_read, peak_hours_text, peak_words
from billing.price_books import peak_prices_of, price_book_after, price_book_at, prices_of
from billing.queries import money_held
from billing.rates import NO_PEAKS
from billing.rules import amount_parse, money_text
from billing.services import Peaks, price_book_check, price_book_publish, price_param
from tenants.access import Actor
from tenants.models import GpuClass, Tier, User
from tenants.platform.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.errors import Refused, invalid
from tenants.web.frame import operator_page, tenant_page

Prices = Mapping[tuple[str, str], Decimal]
PRICE_PLACES = 4
MOST_NAMED = 12


@dataclass(frozen=True, slots=True)
class Cell:
    """The price of a class in a tier, now, in peak hours, and in the next version if it changes."""

    tier: Tier
    now: str
    peak: str
    then: str


@dataclass(frozen=True, slots=True)
class Field:
    """An input with its value and error."""

    name: str
    label: str
    value: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class FieldError:
    """The field and the reason of a refusal."""

    param: str
    sentence: str


@require_safe
@tenant_page
def prices(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the price of a GPU-hour now and in the next version."""
    now = timezone.now()
    book, coming = price_book_at(now), price_book_after(now)
    tiers = list(Tier.objects.all())
    today = prices_of(book) if book else {}
    peaks = peak_prices_of(book) if book else {}
    next_prices = prices_of(coming) if coming else {}
    currency = book.currency if book else "EUR"
    rows = [
        (
            gpu_class,
            [_cell((gpu_class, tier), (today, peaks, next_prices), currency) for tier in tiers],
        )
        for gpu_class in GpuClass.objects.all()
    ]
    context = {
        "book": book,
        "coming": coming,
        "tiers": tiers,
        "rows": rows,
        "peak_hours": peak_words(book.hours) if book else "",
    }
    return render(request, "billing/prices.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_prices(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows all versions and a form for the next; POST publishes it after a confirmation."""
    now = timezone.now()
    if request.method != "POST":
        return _form(request, None, now)
    try:
        valid_from = _valid_from(request.POST.get("valid_from", ""), now)
        wanted, peaks = _prices(request.POST), _peaks(request.POST)
        if CONFIRMED_FIELD not in request.POST:
            latest = price_book_check(valid_from=valid_from, prices=wanted, peaks=peaks, now=now)
            return confirm_page(request, _question(latest, valid_from, (wanted, peaks), now))
        book = price_book_publish(
            actor_id=operator.pk,
            valid_from=valid_from,
            prices=wanted,
            peaks=peaks,
            note=request.POST.get("note", "").strip(),
            now=now,
        )
    except Refused as refusal:
        return _form(request, FieldError(refusal.param or "valid_from", refusal.sentence), now)
    begins = timezone.localtime(book.valid_from)
    messages.success(
        request,
        f"Version {book.version} published, valid from {begins.day} {begins:%b %Y %H:%M}.",
    )
    return redirect("ops-prices")


def _question(
    latest: PriceBook | None, valid_from: datetime, wanted: tuple[Prices, Peaks], now: datetime
) -> Confirmation:
    """Returns the confirmation before a version is published, with the price changes."""
    live = price_book_at(now)
    old, currency = prices_of(live) if live else {}, live.currency if live else "EUR"
    prices, peaks = wanted
    changes = [
        *_changes(old, prices, currency),
        *_changes(peak_prices_of(live) if live else {}, peaks.prices, currency, " in peak hours"),
    ]
    more = len(changes) - MOST_NAMED
    version = latest.version + 1 if latest else 1
    bookings, held = money_held()
    begins = timezone.localtime(valid_from)
    since = "from now on"
    if valid_from > now:
        since = f"from {begins.day} {begins:%b %Y %H:%M} on"
    return Confirmation(
        title=f"Publish price book version {version}?",
        lost=(
            f"Version {version} applies to bookings made {since}.",
            f"Peak hours are {peak_words(peaks.hours) or 'none'}.",
            *(changes[:MOST_NAMED] or ["No prices change."]),
            *([f"and {more} more"] if more > 0 else []),
            (
                f"{_count(bookings, 'open booking')} keep their price; "
                f"{money_text(held, currency)} "
                "stays held for them."
            )
            if bookings
            else "There are no open bookings.",
            "This can't be undone. To change prices again, publish another version.",
        ),
        button=f"Publish version {version}, change {_count(len(changes), 'price')}",
        back="/ops/prices",
        keep="Keep the prices",
    )


def _changes(old: Prices, wanted: Prices, currency: str, when: str = "") -> Iterator[str]:
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    names = dict(Tier.objects.values_list("slug", "name"))
    for (gpu_class, tier), price in sorted(wanted.items()):
        before = old.get((gpu_class, tier))
        if before == price:
            continue
        what = f"{labels[gpu_class]} in {names[tier]}{when}"
        if before is None:
            yield f"{what}: {_amount(price)} {currency} per GPU-hour, new"
            continue
        change = f" ({100 * (price - before) / before:+.1f} %)" if before else ""
        yield f"{what}: {_amount(before)} → {_amount(price)} {currency}{change}"


def _amount(price: Decimal) -> str:
    """Formats a price with two decimals, or four if needed."""
    return f"{price:.2f}" if price == round(price, 2) else str(price)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _cell(of: tuple[GpuClass, Tier], prices: tuple[Prices, Prices, Prices], currency: str) -> Cell:
    """Returns the price in force, in peak hours, and in the next version."""
    gpu_class, tier = of
    now, peak, then = (each.get((gpu_class.slug, tier.slug)) for each in prices)
    return Cell(
        tier=tier,
        now=money_text(now, currency) if now is not None else "",
        peak=money_text(peak, currency) if peak is not None and peak != now else "",
        then=money_text(then, currency) if then is not None and then != now else "",
    )


def _form(request: HttpRequest, problem: FieldError | None, now: datetime) -> HttpResponse:
    form = request.POST if problem else None
    latest = PriceBook.objects.order_by("-version").first()
    known = prices_of(latest) if latest else {}
    tiers = list(Tier.objects.all())
    known_peaks = peak_prices_of(latest) if latest else {}
    rows = [
        (
            gpu_class,
            [
                (
                    _price_field(gpu_class, tier, known, form, problem),
                    _price_field(gpu_class, tier, known_peaks, form, problem, is_peak=True),
                )
                for tier in tiers
            ],
        )
        for gpu_class in GpuClass.objects.all()
    ]
    hours = latest.hours if latest else NO_PEAKS
    zone = hours.zone if hours.weekly else str(timezone.get_current_timezone())
    fields = [
        _field("valid_from", "Valid from", form, problem),
        _field("note", "Note", form, problem),
        _field("peak_hours", "Peak hours", form, problem, peak_hours_text(hours)),
        _field("peak_zone", "By the clocks of", form, problem, zone),
    ]
    shown = [field for _, cells in rows for pair in cells for field in pair] + fields
    return render(
        request,
        "billing/ops_prices.html",
        {
            "books": PriceBook.objects.all(),
            "current": price_book_at(now),
            "next_version": latest.version + 1 if latest else 1,
            "currency": latest.currency if latest else "EUR",
            "tiers": tiers,
            "rows": rows,
            "valid_from": fields[0],
            "note": fields[1],
            "peak_fields": fields[2:],
            "stray": None if any(field.error for field in shown) else problem,
        },
        status=422 if problem else 200,
    )


def _price_field(
    gpu_class: GpuClass,
    tier: Tier,
    known: Prices,
    form: QueryDict | None,
    problem: FieldError | None,
    *,
    is_peak: bool = False,
) -> Field:
    price = known.get((gpu_class.slug, tier.slug))
    value = "" if price is None else _amount(price)
    name = price_param(gpu_class.slug, tier.slug, is_peak=is_peak)
    label = f"{gpu_class.label}, {tier.name}{', peak' if is_peak else ''}"
    return _field(name, label, form, problem, value)


def _field(
    name: str,
    label: str,
    form: QueryDict | None,
    problem: FieldError | None,
    value: str = "",
) -> Field:
    return Field(
        name=name,
        label=label,
        value=value if form is None else form.get(name, ""),
        error=problem.sentence if problem and problem.param == name else "",
    )


def _prices(form: QueryDict) -> dict[tuple[str, str], Decimal]:
    found = {}
    for gpu_class in GpuClass.objects.all():
        for tier in Tier.objects.all():
            name = price_param(gpu_class.slug, tier.slug)
            found[gpu_class.slug, tier.slug] = amount_parse(
                form.get(name, ""), param=name, places=PRICE_PLACES
            )
    return found


def _peaks(form: QueryDict) -> Peaks:
    """Reads the peak hours and the peak prices; an empty price is the same at all times."""
    found = {}
    for gpu_class in GpuClass.objects.all():
        for tier in Tier.objects.all():
            name = price_param(gpu_class.slug, tier.slug, is_peak=True)
            if form.get(name, "").strip():
                found[gpu_class.slug, tier.slug] = amount_parse(
                    form.get(name, ""), param=name, places=PRICE_PLACES
                )
    hours = peak_hours_read(form.get("peak_hours", ""), form.get("peak_zone", "").strip())
    return Peaks(hours, found)


def _valid_from(text: str, now: datetime) -> datetime:
    """Reads a local time in the operator's zone; empty means now."""
    if not text.strip():
        return now
    try:
        said = datetime.fromisoformat(text.strip())
    except ValueError:
        raise invalid(
            "bad_date", "Enter date and time as 2026-12-01T00:00.", "valid_from"
        ) from None
    return said if timezone.is_aware(said) else timezone.make_aware(said)
