"""A guarantee that is cut, also between dates, and a limit at some times: keep, drain or pause."""

from datetime import datetime, timedelta
from typing import Literal

import pytest

from allocation.features.dated_guarantees.services import (
    DatedGuaranteeTerms,
    guarantee_end,
    guarantee_set,
)
from allocation.features.limit_cuts.enforce import cuts_enforce
from allocation.features.limit_cuts.models import LimitCut
from allocation.models import Booking, Pause
from tenants.access import PlatformActor
from tenants.models import DatedGuarantee, QuotaWindow, Tenant
from tenants.platform.wall import operator_tx, tenant_tx
from tenants.services import Share, tenant_quota_set
from tenants.services.labs.windows import WindowOf, WindowTerms, window_add, window_remove
from tenants.services.limit_changes import Cut, CutAnswer
from tests.builders import a_quota, a_tenant_admin, a_tier, an_actor, an_operator
from tests.builders_allocation import Lab, a_lab, an_ask
from tests.roles import as_owner, as_role, as_system
from tests.services.paused import all_is_well, requested, running
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn
GPU, HOUR, MINUTE = 56_000, timedelta(hours=1), timedelta(minutes=1)
Answer = Literal["keep", "drain", "pause"] | None


@pytest.fixture
def lab(plant: Plant) -> Lab:
    """Two GPUs that are guaranteed; nothing limits what is borrowed."""
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    with as_owner():
        lab.tenant.quota_set.update(guaranteed_units=2 * GPU, borrow_limit_units=None)
    return lab


@pytest.fixture
def rival(lab: Lab) -> Lab:
    """Its neighbour, who is guaranteed two GPUs as well."""
    rival = a_lab("northlab", gpus=0)
    a_tier("standard", pausable=True)
    with as_owner():
        rival.tenant.quota_set.update(guaranteed_units=2 * GPU, borrow_limit_units=None)
    return rival


def cut_to(plant: Plant, tenant: Tenant, gpus: int, answer: CutAnswer | None) -> Cut:
    """An operator sets the usual guarantee."""
    cut, operator = Cut(answer), an_operator()
    with as_role("portal_ops"), operator_tx():
        tenant_quota_set(
            operator=operator,
            tenant=tenant,
            gpu_class="h100",
            share=Share(gpus * GPU),
            now=plant.now,
            cut=cut,
        )
    return cut


def dated(plant: Plant, tenant: Tenant, gpus: int, ends: datetime, cut: Cut) -> DatedGuarantee:
    operator = an_operator()
    terms = DatedGuaranteeTerms(tenant=tenant.slug, gpu_class="h100", guaranteed_units=gpus * GPU, ends=ends)
    with as_role("portal_ops"), operator_tx():
        actor = PlatformActor(operator.pk, "Olaf")
        return guarantee_set(actor=actor, terms=terms, now=plant.now, cut=cut)


def enforced(plant: Plant) -> int:
    with as_system():
        return cuts_enforce(plant.now)


def cuts() -> list[LimitCut]:
    with as_system():
        return list(LimitCut.objects.order_by("created"))


def paused(booking: Booking) -> int:
    with as_system():
        return Pause.objects.filter(booking=booking).count()


def full_hour(moment: datetime, hours: int) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0) + hours * HOUR


def test_a_guarantee_that_is_cut_asks_about_what_was_inside_it(plant: Plant, lab: Lab) -> None:
    first = running(plant, lab, an_ask(2))
    effect = cut_to(plant, lab.tenant, 0, None).effects[0]
    assert effect.is_guarantee
    assert [row.label for row in effect.rows] == [first.label]
    assert cuts() == []
    # What is above the guarantee already is not concerned.
    assert cut_to(plant, lab.tenant, 0, None).effects == []


@pytest.mark.parametrize("answer", [CutAnswer.KEEP, CutAnswer.DRAIN])
def test_what_is_kept_is_not_paused_for_the_neighbour(
    plant: Plant, lab: Lab, rival: Lab, answer: CutAnswer
) -> None:
    first = running(plant, lab, an_ask(2))
    cut_to(plant, lab.tenant, 0, answer)
    plant.later(HOUR)
    requested(plant, rival, an_ask(2))
    plant.round()
    plant.later(2 * MINUTE)
    assert (fresh(first).state, paused(first)) == ("active", 0)
    assert [(each.answer, each.of_guarantee) for each in cuts()] == [(answer, True)]
    plant.later(3 * HOUR)
    enforced(plant)
    assert cuts()[0].outcome == "met"
    assert all_is_well()


def test_without_an_answer_it_is_borrowed_and_the_neighbour_takes_it(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    first = running(plant, lab, an_ask(2))
    cut_to(plant, lab.tenant, 0, None)
    plant.later(HOUR)
    requested(plant, rival, an_ask(2))
    plant.round()
    plant.later(2 * MINUTE)
    assert paused(first) == 1


def test_pause_gives_notice_at_once_and_a_raise_withdraws_it(plant: Plant, lab: Lab) -> None:
    first = running(plant, lab, an_ask(2))
    cut_to(plant, lab.tenant, 0, CutAnswer.PAUSE)
    assert enforced(plant) == 1
    assert fresh(first).state == "pausing"
    cut_to(plant, lab.tenant, 2, None)
    assert cuts()[0].outcome == "raised"
    plant.round()
    assert fresh(first).state == "active"


def test_a_lower_guarantee_between_dates_and_an_end_of_a_higher_one_are_cuts(plant: Plant, lab: Lab) -> None:
    first = running(plant, lab, an_ask(2))
    cut = Cut(CutAnswer.KEEP)
    row = dated(plant, lab.tenant, 0, full_hour(plant.now, 2), cut)
    assert [each.label for each in cut.effects[0].rows] == [first.label]
    assert [(each.source, each.until) for each in cuts()] == [(row.id, row.ends)]
    operator = an_operator()
    with as_role("portal_ops"), operator_tx():
        guarantee_end(actor=PlatformActor(operator.pk, ""), guarantee_id=row.id, now=plant.now)
    assert cuts()[0].outcome == "raised"


def test_a_limit_at_some_times_asks_and_its_removal_ends_the_cut(plant: Plant, lab: Lab) -> None:
    first = running(plant, lab, an_ask(2))
    with as_system():
        admin = an_actor(a_tenant_admin(lab.tenant))
    cut = Cut(CutAnswer.PAUSE)
    of = WindowOf(project=lab.project.slug)
    with as_role("portal_web"), tenant_tx(lab.tenant_id):
        row = window_add(actor=admin, of=of, gpu_class="h100", terms=WindowTerms(GPU), now=plant.now, cut=cut)
    assert [each.label for each in cut.effects[0].rows] == [first.label]
    enforced(plant)
    assert fresh(first).state == "pausing"
    with as_role("portal_web"), tenant_tx(lab.tenant_id):
        window_remove(actor=admin, window_id=row.id, now=plant.now)
    assert [each.outcome for each in cuts()] == ["raised"]
    plant.round()
    assert fresh(first).state == "active"


def test_a_limit_of_tomorrow_is_not_about_what_is_over_by_then(plant: Plant, lab: Lab) -> None:
    running(plant, lab, an_ask(2))
    with as_system():
        admin = an_actor(a_tenant_admin(lab.tenant))
    cut, day = Cut(), (plant.now + 2 * timedelta(days=1)).date()
    terms = WindowTerms(0, first_day=day, last_day=day)
    with as_role("portal_web"), tenant_tx(lab.tenant_id):
        of = WindowOf(project=lab.project.slug)
        window_add(actor=admin, of=of, gpu_class="h100", terms=terms, now=plant.now, cut=cut)
    assert (cut.effects, cuts()) == ([], [])
    with as_system():
        assert QuotaWindow.objects.count() == 1


def test_a_removed_higher_limit_is_a_cut_to_the_usual_one(plant: Plant, lab: Lab) -> None:
    a_quota(lab.tenant, project=lab.project, guaranteed=0, limit=1)
    with as_system():
        admin = an_actor(a_tenant_admin(lab.tenant))
    of = WindowOf(project=lab.project.slug)
    with as_role("portal_web"), tenant_tx(lab.tenant_id):
        row = window_add(actor=admin, of=of, gpu_class="h100", terms=WindowTerms(2 * GPU), now=plant.now)
    first = running(plant, lab, an_ask(2))
    cut = Cut(CutAnswer.DRAIN)
    with as_role("portal_web"), tenant_tx(lab.tenant_id):
        window_remove(actor=admin, window_id=row.id, now=plant.now, cut=cut)
    assert [each.label for each in cut.effects[0].rows] == [first.label]
    assert [(each.answer, each.limit_units) for each in cuts()] == [("drain", GPU)]
