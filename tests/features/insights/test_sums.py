"""Figures of a time whose five-minute rows are gone: the sums by hour give the same."""

from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import Settings

from allocation.models import Allocation, GpuUse, GpuUseDay
from allocation.queries.bookings.money.held_use import booking_uses_of, held_use_of
from allocation.queries.bookings.money.statements import StatementOf
from allocation.queries.fleet.use_hours import use_summed_until
from allocation.services.nodes.telemetry import telemetry_sweep, usage_sum_up
from billing.rules import Period
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, said
from tests.builders import a_tenant
from tests.features.insights.test_every_figure import GRAMS, NOUNS, Sums, lives, of_rows, same
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def a_last_row(now: datetime) -> None:
    """Five minutes of now, so that the rows of all days before are final."""
    with as_system():
        place = Allocation.objects.filter(state="active").order_by("id")[0]
        GpuUse.objects.create(
            gpu_id=place.gpu_id,
            tenant_id=place.tenant_id,
            allocation_id=place.id,
            at=now,
            seconds=300,
            measured=300,
            busy_avg=50.0,
        )


def figures(site: Site, days: tuple[date, date]) -> dict[str, Any]:
    """What is read of some days: figures by each noun, of the site, of statements and of their files."""
    span = f"from={days[0]}&to={days[1]}"
    found = {by: said(site.admin.get(f"kpis?by={by}&{span}")) for by in NOUNS}
    found["site"] = said(site.operator.get(f"platform-kpis?by=tenant&{span}"))
    month = StatementOf(site.tenant.id, Period(*days))
    with tenant_tx(site.tenant.id):
        found["held"] = held_use_of(month, GRAMS, None)
        found["files"] = booking_uses_of(month, GRAMS)
    return found


def near(one: Any, other: Any) -> bool:  # noqa: ANN401 (of JSON and of rows)
    """Whether two answers are the same, but for the last digit of a number."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    if is_dataclass(one):
        return type(one) is type(other) and near(vars_of(one), vars_of(other))
    return bool(one == other) or abs(float(one) - float(other)) <= 0.00101


def vars_of(row: Any) -> dict[str, Any]:  # noqa: ANN401 (a dataclass)
    return {each.name: getattr(row, each.name) for each in fields(row)}


@pytest.mark.parametrize("seed", range(2))
def test_figures_stay_when_rows_become_sums_and_go(site: Site, seed: int, settings: Settings) -> None:
    settings.CARBON_GRAMS_PER_KWH = GRAMS
    # Days that are over, so that no run grows.
    now = timezone.now().replace(hour=12, minute=0, second=0, microsecond=0)
    lives(site, seed, now)
    a_last_row(now)
    days = (now.date() - 9 * DAY, now.date())
    with as_system():
        expected = {by: of_rows(noun, days, now) for by, noun in NOUNS.items()}
    before = figures(site, days)
    with as_system():
        while usage_sum_up(now):
            pass
        with_both = figures(site, days)
        rows = GpuUse.objects.count()
        while telemetry_sweep(now + 91 * DAY):
            pass
        assert GpuUse.objects.count() < rows / 4
        assert GpuUse.objects.filter(at__lt=use_summed_until()).count() == 0
    after = figures(site, days)
    # Sums are exact to 24 bits.
    assert not [at for at in before if not near(before[at], with_both[at])]
    assert with_both == after
    for by, table in expected.items():
        found = {(date.fromisoformat(row["starts"]), row["name"]): row for row in after[by]["items"]}
        assert not {key: wrong for key in table if (wrong := same(found[key], _read(table[key])))}


def _read(of: Sums) -> dict[str, Any]:
    """Figures that come from readings, or are divided by them; charges are in no row of use."""
    return {name: value for name, value in of.shown().items() if name != "spend"}


def test_a_day_is_summed_up_once_and_only_when_its_rows_are_final(site: Site) -> None:
    now = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    lives(site, 7, now)
    with as_system():
        GpuUse.objects.filter(at__gte=now).delete()
    a_last_row(now - 5 * timedelta(minutes=1))
    with as_system():
        while usage_sum_up(now):
            pass
        assert use_summed_until() < now
    a_last_row(now + timedelta(minutes=15))
    with as_system():
        assert usage_sum_up(now + HOUR) == 0
    a_last_row(now + timedelta(minutes=20))
    with as_system():
        assert usage_sum_up(now + timedelta(minutes=19)) == 0
        assert usage_sum_up(now + HOUR) > 0
        assert usage_sum_up(now + HOUR) == 0
        assert use_summed_until() == now


def test_rows_stay_until_they_are_in_sums_and_sums_go_after_400_days(site: Site) -> None:
    now = timezone.now()
    lives(site, 8, now)
    with as_system():
        rows = GpuUse.objects.count()
        while telemetry_sweep(now + 91 * DAY):
            pass
        assert GpuUse.objects.count() == rows
        while usage_sum_up(now):
            pass
        first = GpuUseDay.objects.order_by("day")[0].day
        telemetry_sweep(datetime.combine(first, time(), UTC) + 400 * DAY)
        assert GpuUseDay.objects.filter(day=first).exists()
        telemetry_sweep(datetime.combine(first, time(), UTC) + 401 * DAY)
        assert not GpuUseDay.objects.filter(day=first).exists()


def test_another_organisation_sees_no_sums(site: Site) -> None:
    now = timezone.now()
    lives(site, 9, now)
    with as_system():
        while usage_sum_up(now):
            pass
        found = GpuUseDay.objects.all()[0]
    with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
        GpuUseDay.objects.filter(id=found.id).update(hours=[*found.hours, 23])
    with tenant_tx(site.tenant.id):
        assert GpuUseDay.objects.exists()
    with tenant_tx(a_tenant("other").id):
        assert not GpuUseDay.objects.exists()
