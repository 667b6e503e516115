"""The page of a draft of a price book: what it changes, its effect, and who publishes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.queries.bookings.money.price_effect import last_month, price_effect
from allocation.queries.fleet.catalogue import ask_catalogue
from billing.models import PriceBook, PriceDraft
from billing.peak_text import peak_words
from billing.price_books import currency_latest
from billing.queries import money_held
from billing.rules import money_text, period_text
from billing.services import (
    DraftTerms,
    PriceChange,
    draft_changes,
    is_outdated,
    price_draft_discard,
    price_draft_publish,
    price_draft_rebase,
    price_draft_save,
)
from billing.web.price_form import price_form, price_form_read, price_text
from tenants.models import GpuClass, Tier, User
from tenants.platform.costly import costly
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import form_act_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.text import whole_number
from tenants.queries import is_only_operator
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page
from tenants.web.parts import counted

ACTS = ("save", "publish", "rebase", "discard")
MOST_PROJECTS = 200
STEP = Decimal("0.1")


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A changed price, as the table shows it."""

    gpu_class: str
    tier: str
    when: str
    old: str
    new: str
    percent: str
    is_rise: bool


@dataclass(frozen=True, slots=True)
class EffectRow:
    """A project's bill, or that of all."""

    tenant: str
    project: str
    old: str
    new: str
    change: str
    percent: str
    is_rise: bool


@costly("preview")
@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.MONEY)
def price_draft(request: HttpRequest, operator: User, draft_id: UUID) -> HttpResponse:
    """Shows the draft. POST saves, rebases, discards or publishes it."""
    rows = PriceDraft.objects.select_related("author", "base", "decided_by", "book")
    draft = rows.filter(id=draft_id).first()
    if draft is None:
        raise missing("draft")
    now = timezone.now()
    if request.method != "POST":
        return _shown(request, operator, draft, None, now)
    try:
        return _acted(request, operator, draft, now)
    except Refused as refusal:
        if refusal.kind == "missing":
            raise
        return _shown(request, operator, draft, refusal, now)


def _acted(request: HttpRequest, operator: User, draft: PriceDraft, now: datetime) -> HttpResponse:
    act = form_act_read(request, ACTS)
    is_alone = is_only_operator(operator.pk, Area.MONEY, now)
    asks = act in ("publish", "discard") and draft.state == PriceDraft.State.OPEN
    is_mine = draft.author_id == operator.pk and not (is_alone and act == "publish")
    if asks and CONFIRMED_FIELD not in request.POST and not is_mine:
        return confirm_page(request, _question(draft, act, now))
    if act == "save":
        terms = price_form_read(request.POST, _profiles(), DraftTerms.of_draft(draft))
        price_draft_save(author_id=operator.pk, draft_id=draft.id, terms=terms, now=now)
        who = "You are the only operator: publish it" if is_alone else "Another operator publishes it"
        messages.success(request, f"Saved the draft. {who}.")
    elif act == "rebase":
        price_draft_rebase(author_id=operator.pk, draft_id=draft.id, now=now)
        messages.success(request, "Rebased the draft. Your changes stay; check them again.")
    elif act == "discard":
        price_draft_discard(operator_id=operator.pk, draft_id=draft.id, now=now)
        messages.success(request, "Discarded the draft.")
        return redirect("ops-prices")
    else:
        revision = request.POST.get("revision", "")
        book = price_draft_publish(
            publisher_id=operator.pk,
            draft_id=draft.id,
            revision=whole_number(revision) or 0,
            now=now,
        )
        begins = timezone.localtime(book.valid_from)
        messages.success(
            request,
            f"Version {book.version} published, valid from {begins.day} {begins:%b %Y %H:%M}.",
        )
        return redirect("ops-prices")
    return redirect("price-draft", draft.id)


def _question(draft: PriceDraft, act: str, now: datetime) -> Confirmation:
    """Returns the confirmation before a draft is published or discarded."""
    count = counted(len(draft_changes(draft)), "price")
    back = f"/ops/prices/drafts/{draft.id}"
    if act == "discard":
        lost = (f"It changes {count}. Its author, {draft.author}, can write it again.",)
        return Confirmation("Discard this draft?", lost, "Discard the draft", back)
    terms, version = DraftTerms.of_draft(draft), _next_version()
    begins = "from now on"
    if terms.valid_from is not None and terms.valid_from > now:
        at = timezone.localtime(terms.valid_from)
        begins = f"from {at.day} {at:%b %Y %H:%M} on"
    bookings, held = money_held()
    kept = f"{counted(bookings, 'open booking')} keep their price; {money_text(held, currency_latest())}"
    return Confirmation(
        title=f"Publish price book version {version}?",
        lost=(
            f"Version {version} applies to bookings made {begins}.",
            f"Peak hours are {peak_words(terms.peaks.hours) or 'none'}.",
            f"{kept} stays held for them." if bookings else "There are no open bookings.",
            "This can't be undone. To change prices again, publish another version.",
        ),
        button=f"Publish version {version}, change {count}",
        back=back,
        keep="Keep the prices",
    )


def _shown(
    request: HttpRequest,
    operator: User,
    draft: PriceDraft,
    refusal: Refused | None,
    now: datetime,
) -> HttpResponse:
    terms, is_open = DraftTerms.of_draft(draft), draft.state == PriceDraft.State.OPEN
    base = DraftTerms.of_book(draft.base)
    is_saving = refusal is not None and request.POST.get("act") == "save"
    is_mine = draft.author_id == operator.pk
    currency = currency_latest()
    effect = price_effect(terms.current(currency), last_month(now))
    old_hours, new_hours = peak_words(base.peaks.hours), peak_words(terms.peaks.hours)
    typed = (request.POST, refusal) if is_saving else (None, None)
    form = price_form(terms, _profiles(), *typed)
    context = {
        "draft": draft,
        "next_version": draft.book_id or _next_version(),
        "changes": list(_change_rows(draft_changes(draft))),
        "prices": len(terms.prices) + len(terms.slices),
        "hours": (old_hours or "none", new_hours or "none") if old_hours != new_hours else None,
        "effect": effect,
        "month": period_text(effect.month),
        "effect_rows": [
            _effect_row((each.tenant, each.project), each.old, each.new, currency)
            for each in effect.projects[:MOST_PROJECTS]
        ],
        "effect_more": max(0, len(effect.projects) - MOST_PROJECTS),
        "effect_total": _effect_row(("", "All projects"), effect.old, effect.new, currency),
        "form": form if is_open and is_mine else None,
        "is_mine": is_mine,
        "can_publish": not is_mine or is_only_operator(operator.pk, Area.MONEY, now),
        "is_open": is_open,
        "is_outdated": is_open and is_outdated(draft),
        "currency": currency,
        "refusal": None if is_saving and not form.stray else refusal,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/ops_price_draft.html", context, status=status)


def _change_rows(changes: list[PriceChange]) -> Iterator[ChangeRow]:
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    names = dict(Tier.objects.values_list("slug", "name"))
    for each in changes:
        yield ChangeRow(
            gpu_class="Set-up fee" if each.is_setup else labels.get(each.gpu_class, each.gpu_class),
            tier=names.get(each.tier, each.tier),
            when=_kind(each),
            old="none" if each.old is None else price_text(each.old),
            new="none" if each.new is None else price_text(each.new),
            percent=_percent(each.percent) if each.percent is not None else _end(each),
            is_rise=each.new is not None and each.new > (each.old or 0),
        )


def _end(change: PriceChange) -> str:
    if change.new is None and change.is_setup:
        return "no fee"
    if change.new is None:
        return "as other hours" if change.is_peak else "by its units"
    return "new"


def _kind(change: PriceChange) -> str:
    """What of the class the price is for; empty for a whole GPU outside of peak hours."""
    slices = f"a slice {change.profile}" if change.profile else ""
    return ", ".join(filter(None, (slices, "peak hours" if change.is_peak else "")))


def _profiles() -> dict[str, tuple[str, ...]]:
    return {each.slug: each.profiles for each in ask_catalogue().every_class}


def _effect_row(names: tuple[str, str], old: Decimal, new: Decimal, currency: str) -> EffectRow:
    change = new - old
    sign = "+" if change > 0 else ""
    return EffectRow(
        tenant=names[0],
        project=names[1],
        old=money_text(old, currency),
        new=money_text(new, currency),
        change=f"{sign}{money_text(change, currency)}",
        percent=_percent(100 * change / old) if old and change else "",
        is_rise=change > 0,
    )


def _percent(share: Decimal) -> str:
    return f"{share.quantize(STEP):+} %".replace("-", "\u2212")


def _next_version() -> int:
    latest = PriceBook.objects.order_by("-version").values_list("version", flat=True).first()
    return (latest or 0) + 1


urlpatterns = [
    path("ops/prices/drafts/<uuid:draft_id>", price_draft, name="price-draft"),
]
