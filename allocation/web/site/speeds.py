"""The operator's page of the relative speed of each workload on each class."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.queries.bookings.site_bookings import NO_USE, WorkloadUse, workload_uses
from allocation.queries.fleet.catalogue import work_speeds
from allocation.rules.site.known_models import known_catalogue
from allocation.services.record.workloads import speeds_set
from allocation.web.parts.times import length_words
from allocation.words.refusals import refusal_text
from billing.price_books import CurrentPrice, current_prices
from billing.rules import money_text
from tenants.models import GpuClass, Tier, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import form_action_run
from tenants.queries import tiers_all
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page
from tenants.web.parts import counted

SPEED = re.compile(r"\d{1,4}(?:\.\d{1,3})?", re.ASCII)
# The work whose time and cost are compared: so many hours on the fastest class.
HOURS = 10
USED_DAYS = 30


@dataclass(frozen=True, slots=True)
class SpeedCell:
    """A class in the table of a workload.

    `percent` and `typical_percent` are parts of the longest bar. `takes` and `cost` are of the work
    that is compared; both are empty where the class has no speed.
    """

    slug: str
    label: str
    text: str
    percent: Decimal = Decimal(0)
    typical: str = ""
    typical_percent: Decimal = Decimal(0)
    takes: str = ""
    cost: str = ""
    is_cheapest: bool = False
    bookings: int = 0
    error: str = ""

    @property
    def words(self) -> str:
        """Returns the bar in words."""
        typical = f", typical {self.typical}" if self.typical else ""
        return f"{self.text or 'no speed'}{typical}"


@dataclass(frozen=True, slots=True)
class SpeedCard:
    """A workload with its classes in their order, or the form of a new one."""

    workload: str
    cells: tuple[SpeedCell, ...]
    work: str = ""
    use: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Market:
    """What cards are made of: classes, the prices of one tier, typical speeds, and use."""

    classes: Sequence[tuple[str, str]]
    tier: Tier | None
    prices: Mapping[str, CurrentPrice]
    typical: Mapping[str, Mapping[str, int]]
    uses: Mapping[str, WorkloadUse]


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_speeds(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows a card for each workload and the form of a new one; `tier` selects the prices."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, {"set": lambda form: _set(operator, form)})
        if refusal is None:
            return redirect(request.get_full_path())
    tiers, known = list(tiers_all()), work_speeds()
    market = _market(tiers, request.GET.get("tier", ""), list(known))
    sent = Sent(request.POST, refusal) if refusal else None
    cards = [_card(name, speeds, market) for name, speeds in known.items()]
    blank = SpeedCard("", tuple(SpeedCell(*each, "") for each in market.classes))
    is_shown = sent is not None and any(map(sent.is_of, cards))
    context = {
        "cards": [sent.into(each) if sent and sent.is_of(each) else each for each in cards],
        "new": sent.into(blank) if sent and not is_shown else blank,
        "tiers": tiers,
        "tier": market.tier,
        "days": USED_DAYS,
        "refusal": refusal if sent and sent.is_stray(market.classes) else None,
        "workload_error": refusal.sentence if refusal and refusal.param == "workload" else "",
    }
    return render(request, "allocation/ops_speeds.html", context, status=422 if refusal else 200)


def _set(operator: User, form: QueryDict) -> str:
    workload = form.get("workload", "").strip().lower()
    typed = {
        key.removeprefix("speed-"): text.strip()
        for key, text in form.items()
        if key.startswith("speed-") and isinstance(text, str) and text.strip()
    }
    speeds = {name: _thousandths(name, text) for name, text in typed.items()}
    before = work_speeds().get(workload, {})
    speeds_set(operator=operator, workload=workload, speeds=speeds, now=timezone.now())
    if speeds:
        return f"Speeds of {workload} saved."
    if not before:
        return f"{workload} has no speeds, so nothing was saved."
    had = ", ".join(f"{name} {_text(each)}" for name, each in before.items())
    return f"{workload} removed. Its speeds were: {had}."


def _thousandths(name: str, text: str) -> int:
    """`0.45` is 450. Raises Refused."""
    if not SPEED.fullmatch(text):
        raise _not_a_speed(name)
    whole, _, rest = text.partition(".")
    return int(whole) * 1000 + int(rest.ljust(3, "0") or 0)


def _not_a_speed(name: str) -> Refused:
    return invalid("bad_speed", refusal_text("speed_form"), f"speeds.{name}")


@dataclass(frozen=True, slots=True)
class Sent:
    """A refused form, shown again as typed."""

    form: QueryDict
    refusal: Refused

    def is_of(self, card: SpeedCard) -> bool:
        """Returns whether the form is the card's."""
        return card.workload == self.form.get("workload", "").strip().lower()

    def is_stray(self, classes: Sequence[tuple[str, str]]) -> bool:
        """Returns whether the refusal belongs to no field of the page."""
        fields = {"workload", *(f"speeds.{slug}" for slug, _ in classes)}
        return self.refusal.param not in fields

    def into(self, card: SpeedCard) -> SpeedCard:
        """Returns the card with what was typed, and the error of its field."""
        cells = tuple(
            SpeedCell(
                each.slug,
                each.label,
                self.form.get(f"speed-{each.slug}", "")[:12],
                bookings=each.bookings,
                error=self.refusal.sentence if self.refusal.param == f"speeds.{each.slug}" else "",
            )
            for each in card.cells
        )
        name = card.workload or self.form.get("workload", "")[:40]
        return SpeedCard(name, cells, card.work, card.use)


def _market(tiers: Sequence[Tier], chosen: str, workloads: Sequence[str]) -> Market:
    now = timezone.now()
    usual = next((each for each in tiers if each.pausable), tiers[0] if tiers else None)
    tier = next((each for each in tiers if each.slug == chosen), usual)
    classes = list(GpuClass.objects.values_list("slug", "label"))
    slug = tier.slug if tier else ""
    return Market(
        classes=classes,
        tier=tier,
        prices={each: price for (each, of), price in current_prices(now).items() if of == slug},
        typical=known_catalogue().speeds(name for name, _ in classes),
        uses=workload_uses(workloads, since=now - timedelta(days=USED_DAYS)),
    )


def _card(workload: str, speeds: Mapping[str, int], market: Market) -> SpeedCard:
    labels, use = dict(market.classes), market.uses.get(workload, NO_USE)
    fastest = max(speeds, key=lambda each: speeds[each])
    costs = {
        name: market.prices[name].per_gpu_hour * HOURS * speeds[fastest] / speed
        for name, speed in speeds.items()
        if name in market.prices
    }
    cheapest = min(costs, key=lambda each: costs[each], default="")
    return SpeedCard(
        workload=workload,
        cells=tuple(_cell(name, label, workload, speeds, costs, market) for name, label in market.classes),
        work=f"{HOURS} h of {labels[fastest]}",
        use=_use_words(use),
        summary=_summary(labels, fastest, cheapest, costs, market),
    )


def _cell(
    name: str,
    label: str,
    workload: str,
    speeds: Mapping[str, int],
    costs: Mapping[str, Decimal],
    market: Market,
) -> SpeedCell:
    typical = market.typical.get(workload, {})
    longest, most = max(*speeds.values(), *typical.values(), 1), max(speeds.values())
    speed, known = speeds.get(name), typical.get(name)
    price = market.prices.get(name)
    cheapest = min(costs.values(), default=None)
    return SpeedCell(
        slug=name,
        label=label,
        text=_text(speed),
        percent=Decimal(speed or 0) * 100 / longest,
        typical=_text(known),
        typical_percent=Decimal(known or 0) * 100 / longest,
        takes=length_words(HOURS * 3600 * most / speed) if speed else "",
        cost=money_text(costs[name], price.currency) if price and name in costs else "",
        is_cheapest=len(costs) > 1 and costs.get(name) == cheapest,
        bookings=market.uses.get(workload, NO_USE).by_class.get(name, 0),
    )


def _use_words(use: WorkloadUse) -> str:
    if not use.bookings:
        return f"no booking in {USED_DAYS} days"
    return f"{counted(use.bookings, 'booking')} in {USED_DAYS} days, {use.open} open now"


def _summary(
    labels: Mapping[str, str],
    fastest: str,
    cheapest: str,
    costs: Mapping[str, Decimal],
    market: Market,
) -> str:
    first = f"Fastest on {labels[fastest]}"
    if not cheapest or market.tier is None:
        return f"{first}; no price in force."
    if cheapest == fastest:
        return f"{first}, which also costs least in {market.tier.name}."
    price = market.prices[cheapest]
    least = money_text(costs[cheapest], price.currency)
    instead = f" instead of {money_text(costs[fastest], price.currency)}" * (fastest in costs)
    return f"{first}. Costs least on {labels[cheapest]}: {least}{instead} in {market.tier.name}."


def _text(thousandths: int | None) -> str:
    return "" if thousandths is None else f"{thousandths / 1000:g}"


urlpatterns = [path("ops/speeds", ops_speeds, name="ops-speeds")]
