"""Cutting a limit below what is in use: what is kept, drained or paused, and what ends it."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F

from allocation.features.limit_cuts.enforce import cuts_enforce
from allocation.features.limit_cuts.models import CutPause, KeptBooking, LimitCut
from allocation.features.limit_cuts.services import limit_cut_end
from allocation.models import Booking, Pause
from allocation.queries.limits.use_now import use_now
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from tenants.access import Actor
from tenants.models import AuditEntry, GpuClass, Quota, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx, tenant_tx
from tenants.services import Share, quota_set, tenant_quota_set
from tenants.services.labs.limits import person_quota_set
from tenants.services.limit_changes import Cut, CutAnswer
from tests.builders import a_quota, a_tenant_admin, a_tier, an_actor, an_operator
from tests.builders_allocation import Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_owner, as_role, as_system
from tests.services.paused import all_is_well, requested, running, story
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn
GPU = 56_000
MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    a_quota(lab.tenant, project=lab.project, guaranteed=0, limit=2)
    return lab


def admin_of(lab: Lab) -> Actor:
    with as_system():
        return an_actor(a_tenant_admin(lab.tenant))


def cut_to(plant: Plant, lab: Lab, gpus: int, answer: CutAnswer | None) -> Cut:
    """An admin sets the project's limit, as a page does."""
    cut, actor = Cut(answer), admin_of(lab)
    with as_role("portal_web"), tenant_tx(lab.tenant_id):
        share = Share(0, gpus * GPU)
        quota_set(actor=actor, project=lab.project, gpu_class="h100", share=share, now=plant.now, cut=cut)
    return cut


def enforced(plant: Plant) -> int:
    with as_system():
        return cuts_enforce(plant.now)


def of(lab: Lab) -> LimitCut:
    with as_system():
        return LimitCut.objects.get(project=lab.project)


def test_keep_lets_a_planned_start_begin_above_the_limit_and_nothing_new(plant: Plant, lab: Lab) -> None:
    first = running(plant, lab, an_ask(2))
    then = requested(plant, lab, an_ask(2))
    plant.round()
    starts = fresh(then).planned_starts
    effect = cut_to(plant, lab, 1, CutAnswer.KEEP).effects[0]
    assert [(row.label, row.is_planned) for row in effect.rows] == [(first.label, False), (then.label, True)]
    assert (effect.used, effect.name) == (2 * GPU, lab.project.name)
    assert story(then)[-1] == "limit_kept"
    plant.round()
    assert fresh(first).state == "active"
    assert fresh(then).planned_starts == starts
    plant.later(MINUTE)
    new = requested(plant, lab, an_ask(1))
    plant.round()
    assert starts is not None
    plant.later(timedelta(hours=2, seconds=2))
    plant.later_until(starts + MINUTE)
    assert fresh(then).state == "active"
    assert fresh(new).state == "queued"
    enforced(plant)
    assert of(lab).ended is None
    plant.later(timedelta(hours=2))
    plant.later(2 * MINUTE)
    assert fresh(new).state == "active"
    enforced(plant)
    assert (of(lab).outcome, fresh(first).state) == ("met", "ended")
    assert all_is_well()


@pytest.mark.parametrize("answer", [None, CutAnswer.DRAIN])
def test_drain_lets_what_runs_end_and_planned_starts_wait(
    plant: Plant, lab: Lab, answer: CutAnswer | None
) -> None:
    first = running(plant, lab, an_ask(2))
    other, then = (requested(plant, lab, an_ask(1)) for _ in range(2))
    plant.round()
    assert fresh(other).planned_starts == fresh(then).planned_starts
    rows = cut_to(plant, lab, 1, answer).effects[0].rows
    # Two of one GPU each come after: one of them waits for the other.
    assert [row.is_planned for row in rows] == [False, True]
    if rows[1].label == other.label:
        other, then = then, other
    assert (of(lab).answer, story(then)[-1]) == ("drain", "limit_drained")
    enforced(plant)
    plant.round()
    with as_system():
        assert not Pause.objects.exists()
    assert fresh(first).state == "active"
    plant.later(timedelta(hours=2, seconds=2))
    plant.later(2 * MINUTE)
    assert [fresh(each).state for each in (first, other, then)] == ["ended", "active", "queued"]
    assert [each["code"] for each in fresh(then).reasons if each["check"] == "quota"] == ["project_quota"]


def test_pause_takes_the_newest_first_and_what_fits_stays(plant: Plant, lab: Lab) -> None:
    old = running(plant, lab, an_ask(1))
    plant.later(10 * MINUTE)
    new = running(plant, lab, an_ask(1))
    cut_to(plant, lab, 1, CutAnswer.PAUSE)
    assert enforced(plant) == 1
    assert enforced(plant) == 0
    plant.round()
    assert (fresh(old).state, fresh(new).state) == ("active", "pausing")
    with as_system():
        pause = Pause.objects.select_related("cause").get(booking=new)
    assert (pause.rule, pause.relation, pause.cause.beneficiary_id) == ("R176", "tenant", None)
    assert lab.project.name in pause.sentence
    # Nothing withdraws it while the limit is as low.
    plant.later(MINUTE)
    assert fresh(new).state == "pausing"
    plant.later_until(pause.deadline + timedelta(seconds=1))
    plant.later(MINUTE)
    assert fresh(new).state == "paused"
    enforced(plant)
    # It resumes when the limit allows it, without anybody's act.
    plant.later(timedelta(hours=2))
    assert fresh(old).state == "ended"
    assert fresh(new).state == "active"
    assert all_is_well()


@pytest.mark.parametrize("how", ["raised", "cancelled", "kept", "another ends"])
def test_the_notice_is_withdrawn_when_its_cause_is_gone(plant: Plant, lab: Lab, how: str) -> None:
    old = running(plant, lab, an_ask(1))
    plant.later(10 * MINUTE)
    new = running(plant, lab, an_ask(1))
    cut_to(plant, lab, 1, CutAnswer.PAUSE)
    enforced(plant)
    plant.later(MINUTE)
    assert fresh(new).state == "pausing"
    if how == "raised":
        cut_to(plant, lab, 2, None)
    elif how == "cancelled":
        with as_role("portal_web"), tenant_tx(lab.tenant_id):
            limit_cut_end(actor=admin_of(lab), cut_id=of(lab).id, now=plant.now)
    elif how == "kept":
        cut_to(plant, lab, 1, CutAnswer.KEEP)
    else:
        with as_system():
            booking_cancel(actor=lab.actor, booking=fresh(old), now=plant.now)
        plant.round()
        enforced(plant)
    plant.round()
    assert fresh(new).state == "active"
    assert story(new)[-1] in ("pause_withdrawn", "limit_kept")
    assert all_is_well()


def test_protected_work_and_tiers_that_are_never_paused_run_on(plant: Plant, lab: Lab) -> None:
    a_tier("standard", pausable=True)
    with as_system():
        Tier.objects.update(protected_seconds=600)
    running(plant, lab, an_ask(1))
    new = running(plant, lab, an_ask(1))
    cut_to(plant, lab, 1, CutAnswer.PAUSE)
    assert enforced(plant) == 0
    plant.later(10 * MINUTE + timedelta(seconds=2))
    assert enforced(plant) == 1
    a_tier("standard", pausable=False)
    cut_to(plant, lab, 0, CutAnswer.PAUSE)
    assert enforced(plant) == 0
    assert fresh(new).state in ("active", "pausing")


def test_no_limit_counts_rented_machines(plant: Plant, lab: Lab) -> None:
    first, key = running(plant, lab, an_ask(2)), (lab.project.id, "h100")
    with as_system():
        assert use_now("project_id", plant.now)[key].used == 2 * GPU
    with as_owner():
        Booking.objects.filter(id=first.id).update(pool="plan-1")
    with as_system():
        assert key not in use_now("project_id", plant.now)
    assert cut_to(plant, lab, 1, CutAnswer.PAUSE).effects == []
    with as_system():
        assert not LimitCut.objects.exists()


def test_an_operators_cut_credits_and_a_cap_and_a_person_are_cut_too(plant: Plant, lab: Lab) -> None:
    booking, operator = running(plant, lab, an_ask(2)), an_operator()
    cut = Cut(CutAnswer.DRAIN)
    with tenant_tx(lab.tenant_id), as_role("portal_web"):
        person_quota_set(
            actor=admin_of(lab),
            project=lab.project.slug,
            username=None,
            gpu_class="h100",
            limit_units=GPU,
            now=plant.now,
            cut=cut,
        )
    assert [row.label for row in cut.effects[0].rows] == [booking.label]
    with as_system():
        Quota.objects.filter(project=lab.project).update(
            guaranteed_units=0, borrow_limit_units=F("guaranteed_units")
        )
    cut = Cut(CutAnswer.PAUSE)
    with operator_tx():
        tenant_quota_set(
            operator=operator,
            tenant=lab.tenant,
            gpu_class="h100",
            share=Share(GPU, 0),
            now=plant.now,
            cut=cut,
        )
    assert [row.label for row in cut.effects[0].rows] == [booking.label]
    enforced(plant)
    with as_system():
        assert Pause.objects.get().relation == ""
        actions = AuditEntry.objects.filter(action="limit_cut.set").values_list("tenant", flat=True)
        # The organisation's limit and its guarantee are both lower than what runs.
        assert sorted(map(str, actions)) == sorted([str(lab.tenant_id)] * 3 + ["None"] * 2)


def test_constraints(plant: Plant, lab: Lab) -> None:
    running(plant, lab, an_ask(2))
    cut_to(plant, lab, 1, CutAnswer.KEEP)
    cut = of(lab)
    other = a_lab("rivals", gpus=0)
    with as_system():
        foreign = a_booking_request(other.project)
        booking = booking_request(actor=other.actor, request=foreign, now=plant.now)
    wrongs: list[Callable[[], object]] = [
        lambda: LimitCut.objects.filter(id=cut.id).update(outcome="met"),
        lambda: LimitCut.objects.filter(id=cut.id).update(answer="stop"),
        lambda: LimitCut.objects.filter(id=cut.id).update(limit_units=None),
        lambda: LimitCut.objects.create(
            tenant=lab.tenant,
            project=lab.project,
            gpu_class=GpuClass.objects.get(slug="h100"),
            limit_units=1,
            answer="keep",
            created=plant.now,
            changed=plant.now,
        ),
        lambda: KeptBooking.objects.create(tenant=lab.tenant, cut=cut, booking=booking),
    ]
    for wrong in wrongs:
        with pytest.raises(IntegrityError), as_role("portal_ops"), transaction.atomic():
            wrong()


def test_who_cancels(plant: Plant, lab: Lab) -> None:
    running(plant, lab, an_ask(2))
    cut_to(plant, lab, 1, CutAnswer.DRAIN)
    other = a_lab("rivals", gpus=0)
    for actor, code in ((lab.actor, "not_allowed"), (admin_of(other), "not_found")):
        with tenant_tx(actor.tenant_id), pytest.raises(Refused) as refused:
            limit_cut_end(actor=actor, cut_id=of(lab).id, now=plant.now)
        assert refused.value.code == code
    with as_system():
        assert not CutPause.objects.exists()
