"""The price pages: current prices for everyone, and the operator's next version."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from billing.models import PriceBook, PriceDraft
from billing.peak_text import peak_words
from billing.price_books import currency_latest, peak_prices_of, price_book_after, price_book_at, prices_of
from billing.rules import money_text
from billing.services import draft_changes, is_outdated, price_draft_create, slices_of
from tenants.access import Actor
from tenants.models import GpuClass, Tier, User
from tenants.queries import is_only_operator
from tenants.rules.operator_roles import Area
from tenants.services import seconds_words
from tenants.web.frame import operator_page, tenant_page

Prices = Mapping[tuple[str, str], Decimal]
MOST_DRAFTS = 50


@dataclass(frozen=True, slots=True)
class Cell:
    """The price of a class in a tier, now, in peak hours, and in the next version if it changes."""

    tier: Tier
    now: str
    peak: str
    then: str


@dataclass(frozen=True, slots=True)
class Fees:
    """What a booking in a tier can cost besides its time; empty for nothing."""

    tier: Tier
    setup: str
    late: str
    no_show: str


@require_safe
@tenant_page
def prices(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the price of a GPU-hour now and in the next version."""
    return render(request, "billing/prices.html", _prices_shown(timezone.now()))


def _prices_shown(now: datetime) -> dict[str, Any]:
    """The prices that are in force, those of the next version where they change, and fees."""
    book, coming = price_book_at(now), price_book_after(now)
    tiers = list(Tier.objects.all())
    today = prices_of(book) if book else {}
    peaks = peak_prices_of(book) if book else {}
    next_prices = prices_of(coming) if coming else {}
    currency = currency_latest()
    rows = [
        (
            gpu_class,
            [_cell((gpu_class, tier), (today, peaks, next_prices), currency) for tier in tiers],
        )
        for gpu_class in GpuClass.objects.all()
    ]
    return {
        "book": book,
        "coming": coming,
        "tiers": tiers,
        "rows": rows,
        "slices": _slices(book, tiers) if book else [],
        "fees": [_fees(tier, book) for tier in tiers],
        "peak_hours": peak_words(book.hours) if book else "",
    }


def _slices(book: PriceBook, tiers: list[Tier]) -> list[tuple[str, str, list[Cell]]]:
    """The profiles with a price of their own, by class, with a cell for each tier."""
    found = slices_of(book)
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    rows = []
    for gpu_class, profile in sorted({(key[0], key[2]) for key in found}):
        cells = []
        for tier in tiers:
            now, peak = found.get((gpu_class, tier.slug, profile), (None, None))
            cells.append(
                Cell(
                    tier=tier,
                    now=money_text(now, book.currency) if now is not None else "",
                    peak=money_text(peak, book.currency) if peak not in (None, now) else "",
                    then="",
                )
            )
        rows.append((labels.get(gpu_class, gpu_class), profile, cells))
    return rows


def _no_show(share: int | None) -> str:
    what = "of the unused rest’s price, if nobody begins to use it"
    return f"a part {what}; the site’s policy says how much" if share is None else f"{share} % {what}"


def _fees(tier: Tier, book: PriceBook | None) -> Fees:
    """What a booking in the tier can cost besides its time."""
    notice = seconds_words(tier.notice_seconds)
    late = f"{tier.late_share} % of what is given up later than {notice} before"
    share, fee = tier.no_show_share, book.setups.get(tier.slug) if book else None
    return Fees(
        tier=tier,
        setup=f"{money_text(fee, book.currency)} at the first start" if book and fee else "",
        late=late if tier.late_share and tier.notice_seconds else "",
        no_show="" if share == 0 else _no_show(share),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.MONEY)
def ops_prices(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows versions and drafts; POST writes a draft with the latest prices, to be changed."""
    now = timezone.now()
    if request.method == "POST":
        draft = price_draft_create(author_id=operator.pk, terms=None, now=now)
        then = (
            "publish it" if is_only_operator(operator.pk, Area.MONEY, now) else "another operator checks it"
        )
        messages.success(request, f"Draft written. Change its prices, then {then}.")
        return redirect("price-draft", draft.id)
    drafts = PriceDraft.objects.filter(state=PriceDraft.State.OPEN)
    shown = _prices_shown(now)
    context = {
        **shown,
        "books": PriceBook.objects.select_related("draft__author", "draft__decided_by"),
        "is_only_operator": is_only_operator(operator.pk, Area.MONEY, now),
        "current": shown["book"],
        "drafts": [
            (draft, len(draft_changes(draft)), is_outdated(draft))
            for draft in drafts.select_related("author", "base")[:MOST_DRAFTS]
        ],
        "has_catalogue": GpuClass.objects.exists() and Tier.objects.exists(),
    }
    return render(request, "billing/ops_prices.html", context)


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
