"""Reads the rules of a past: caps, exceptions, limits at some times, headroom, repeated work, and prices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Count, Q, Sum

from allocation.features.policy_lab.plays.rules_in_time import DAY, NO_RULES, Foreseen, Granted, Rules
from allocation.models import Override as OverrideRow
from allocation.models import Pause
from allocation.services.policy.scenario_sites import quotas_under
from allocation.services.policy.scenarios import Key, Value, scenario_prices
from allocation.services.snapshot.cap_rows import cap_rules_of
from allocation.services.snapshot.inner_limit_rows import inner_limits_read, window_steps_of
from allocation.services.snapshot.limits_in_time import HORIZON_DAYS
from allocation.services.snapshot.override_rows import KINDS, override_of
from allocation.services.snapshot.peaks import peaks_read
from allocation.services.snapshot.quota_rows import quotas_read
from allocation.services.snapshot.snapshot import seconds
from billing.price_books import CurrentPrice, current_prices, price_book_at
from billing.rates import NO_PEAKS, PeakHours
from billing.rules import LEDGER_STEP
from solver import Snapshot, units_of
from tenants.models import Tier

# Forecasts of the past are kept for these hours of a day.
EVERY = timedelta(hours=6)
# Pauses so long before the past say how much work one loses; fewer than `LEAST` say nothing.
PAUSES_SINCE, LEAST = timedelta(days=90), 5
Shape = tuple[str, str, str]
"""Class, tier, and profile of a slice or nothing."""


def rules_read(
    since: datetime, until: datetime, scenario: Mapping[Key, Value], headroom: Mapping[str, int]
) -> Rules:
    """The rules of a past in [since, until), with the caps and limits of a scenario, and the peaks at
    which a policy keeps so many GPUs free by class."""
    quotas = quotas_under(quotas_read(), scenario)
    inner = inner_limits_read(quotas)
    days = (until - since).days + HORIZON_DAYS
    found = Rules(
        cap_rules_of((*quotas, *inner.lab_caps), inner.labs),
        tuple(_exceptions(since, until)),
        window_steps_of(inner, quotas, since, days),
        tuple(_foreseen(since, until, headroom)) if any(headroom.values()) else (),
    )
    return NO_RULES if found == NO_RULES else found


def _exceptions(since: datetime, until: datetime) -> Iterator[Granted]:
    """Exceptions from when they were granted until they were ended."""
    states = (OverrideRow.State.GRANTED, OverrideRow.State.ENDED)
    rows = OverrideRow.objects.filter(state__in=states, kind__in=KINDS, decided__lt=until)
    rows = rows.filter(Q(ended=None) | Q(ended__gt=since))
    rows = rows.filter(Q(until__gt=since) | Q(is_once=True, booking__isnull=False))
    for row in rows.select_related("project").order_by("id"):
        if row.decided is not None:
            yield Granted(seconds(row.decided), seconds(row.ended) if row.ended else None, override_of(row))


def _foreseen(since: datetime, until: datetime, headroom: Mapping[str, int]) -> Iterator[Foreseen]:
    at = since
    while at < until:
        yield Foreseen(seconds(at), peaks_read(at, headroom))
        at = _next_forecast(at)


def _next_forecast(at: datetime) -> datetime:
    hours = int(EVERY.total_seconds()) // 3_600
    begin = at.replace(hour=at.hour // hours * hours, minute=0, second=0, microsecond=0)
    return begin + EVERY


@dataclass(frozen=True, slots=True)
class Repeated:
    """How much work a pause in a tier makes a run repeat: the mean of so many past pauses `of` the tier, of
    all with its method, or of nothing, because there were too few."""

    tier: str
    method: str
    seconds: int
    pauses: int
    of: str


def repeated_read(until: datetime, scenario: Mapping[Key, Value]) -> list[Repeated]:
    """What pauses of each tier lose, by the method that a scenario gives the tier."""
    rows = Pause.objects.filter(emptied_at__gte=until - PAUSES_SINCE, emptied_at__lt=until, withdrawn=False)
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    found = rows.values_list("booking__tier_id", "method").order_by("booking__tier_id", "method")
    for tier, method, lost, count in found.annotate(Sum("lost_seconds"), Count("id")):
        sums[tier, method] = (int(lost), count)
    methods = dict(Tier.objects.filter(pausable=True).order_by("slug").values_list("slug", "pause_method"))
    methods |= {
        whose: str(value)
        for (kind, whose, name), value in scenario.items()
        if (kind, name) == ("tier", "pause_method")
    }
    return [_repeated(tier, method, sums) for tier, method in sorted(methods.items())]


def _repeated(tier: str, method: str, sums: Mapping[tuple[str, str], tuple[int, int]]) -> Repeated:
    lost, count = sums.get((tier, method), (0, 0))
    if count >= LEAST:
        return Repeated(tier, method, lost // count, count, "tier")
    like = [each for (_, how), each in sums.items() if how == method]
    lost, count = sum(each for each, _ in like), sum(each for _, each in like)
    if count >= LEAST:
        return Repeated(tier, method, lost // count, count, "method")
    return Repeated(tier, method, 0, count, "nothing")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in steps of the ledger: a GPU-hour usually and in peak hours, and a first start by tier."""

    hours: PeakHours
    rates: Mapping[Shape, tuple[int, int]]
    setups: Mapping[str, int]

    def rate(self, shape: Shape) -> tuple[int, int]:
        """Returns the prices of a GPU-hour of a shape; a slice without prices costs by its units."""
        gpu_class, tier, _ = shape
        found = self.rates.get(shape)
        return self.rates.get((gpu_class, tier, ""), (0, 0)) if found is None else found


NO_PRICES = Prices(NO_PEAKS, {}, {})


def prices_read(at: datetime, scenario: Mapping[Key, Value], site: Snapshot) -> Prices:
    """The prices of an instant with those of a scenario; slices where they have prices of their own."""
    book = price_book_at(at)
    if book is None:
        return NO_PRICES
    plain, peaks, hours = scenario_prices(scenario, book)
    models = {gpu.gpu_class: gpu.model for gpu in site.gpus}
    by_slug = {model.slug: model for model in site.models}
    rates: dict[Shape, tuple[int, int]] = {}
    for (gpu_class, tier), price in current_prices(at).items():
        usual = plain.get((gpu_class, tier), price.per_gpu_hour)
        own = replace(price, per_gpu_hour=usual, peak_per_gpu_hour=peaks.get((gpu_class, tier), usual))
        rates[gpu_class, tier, ""] = _steps(own)
        model = by_slug.get(models.get(gpu_class, ""))
        for profile in price.slices if model is not None else ():
            if model is not None and any(each.profile == profile for each in model.placements):
                rates[gpu_class, tier, profile] = _steps(own.of(profile, 1, units_of(model, profile)))
    setups = {tier: int(Decimal(fee) / LEDGER_STEP) for tier, fee in book.setups.items()}
    return Prices(hours, rates, setups)


def _steps(price: CurrentPrice) -> tuple[int, int]:
    return int(price.per_gpu_hour / LEDGER_STEP), int(price.peak_per_gpu_hour / LEDGER_STEP)


def forecast_days(rules: Rules) -> int:
    """Returns on how many days of a past some peak was foreseen."""
    days = {each.known // DAY for each in rules.foreseen if each.peaks}
    return len(days)
