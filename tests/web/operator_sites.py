"""Sites on which operators can do each of their acts, and the values that the acts need."""

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from allocation.features.capacity.models import CapacityMachine
from allocation.features.clusters.services import JobsTerms, JobTerms, jobs_keep
from allocation.features.disputes.models import StatementDispute
from allocation.features.policy_lab.shadows import ShadowTerms, shadow_begin
from allocation.features.policy_lab.trials import TrialTerms, trial_ask
from allocation.features.requirements.models import Requirement
from allocation.features.zones.services import ZoneTerms, zone_set
from allocation.models import (
    Allocation,
    EngineAgent,
    EngineHost,
    Gpu,
    GpuModel,
    MachineClock,
    Node,
    Override,
    PolicyVersion,
    PortalMode,
    Rack,
    Stop,
    WorkSpeed,
)
from allocation.rules.states import State
from allocation.services.decide.compaction import compaction_proposals
from allocation.services.operate.maintenance.plan import MaintenanceTerms, maintenance_plan
from allocation.services.policy.activations import policy_activate, policy_publish
from allocation.services.policy.policies import policy_draft
from billing.models import PriceBook
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import (
    DraftTerms,
    Rung,
    budget_put,
    hold_place,
    hold_settle,
    ladder_set,
    price_draft_create,
)
from tenants.access import PlatformActor
from tenants.failures import FailureLog
from tenants.models import FailedMessage, GpuClass, SecondFactor, Tier, User
from tenants.services.announcements import AnnouncementTerms, announcement_publish
from tenants.services.labs.windows import WindowTerms, tenant_window_add
from tenants.services.members.operator_access import AccessTerms, access_begin
from tests.api.builders import Site
from tests.builders import an_operator
from tests.builders_allocation import HOUR, a_booking, an_allocation, an_ask
from tests.builders_pauses import a_decision, a_limit_cut, an_open_appeal
from tests.prices import price_book_publish
from tests.roles import as_owner, as_role

NODE = "gpu-a1-01"
ZONE = ZoneTerms(zone="basel", name="Old Basel", time_zone="Europe/Zurich")

Values = dict[str, Any]
_BEGUN = timezone.now() - 2 * HOUR
JOB: Values = {
    "number": "1",
    "gpus": 1,
    "account": "physics",
    "state": "RUNNING",
    "submitted": _BEGUN,
    "eligible": _BEGUN,
}


def drafted(site: Site) -> Values:
    draft = policy_draft(document={"grid": 600}, now=timezone.now())
    return {"number": draft.number}


def zoned(site: Site) -> Values:
    """A zone in which no rack stands."""
    with as_role("portal_ops"):
        zone_set(actor=PlatformActor(site.people["operator"].pk, "Olaf"), terms=ZONE, now=timezone.now())
    return {"slug": ZONE.zone}


def observed(site: Site) -> Values:
    jobs_keep(actor=None, slug="main", terms=JobsTerms(jobs=[JobTerms(**JOB)]), now=timezone.now())
    return {"slug": "main"}


def orphaned(site: Site) -> Values:
    now = timezone.now()
    row = CapacityMachine.objects.create(
        provider="cloud", name="m-1", provider_id="1", state="orphan", requested=now, came=now
    )
    return {"machine_id": str(row.id), "machine": str(row.id)}


def activating(site: Site) -> Values:
    number = drafted(site)["number"]
    now = timezone.now()
    by = site.people["operator"].pk
    with as_role("portal_ops"):
        policy_activate(number=number, now=now, operator_id=by, starts=now + 5 * HOUR)
    return {"number": number}


def superseded(site: Site) -> Values:
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    policy_publish(document={"grid": 600}, now=timezone.now())
    return {"number": live.number}


def in_shadow(site: Site) -> Values:
    number = drafted(site)["number"]
    operator = site.people["operator"]
    shadow_begin(number=number, terms=ShadowTerms(), operator_id=operator.pk, now=timezone.now())
    return {"number": number}


def more_gpus(site: Site) -> Values:
    return {"trial": on_trial(site)["trial_id"]}


def on_trial(site: Site) -> Values:
    terms = TrialTerms(candidate=drafted(site)["number"])
    operator = site.people["operator"]
    trial = trial_ask(terms=terms, operator_id=operator.pk, now=timezone.now())
    return {"trial_id": str(trial.id)}


def announced_to_all(site: Site) -> Values:
    now = timezone.now()
    terms = AnnouncementTerms("Cables are replaced.", "info", now, now + HOUR)
    made = announcement_publish(operator=site.people["operator"], terms=terms, now=now)
    return {"announcement": str(made.id), "announcement_id": str(made.id)}


def accessed(site: Site) -> Values:
    terms = AccessTerms(site.tenant.slug, "Help", HOUR)
    with as_owner():
        made = access_begin(operator=site.people["operator"], terms=terms, now=timezone.now())
    return {"access": str(made.id), "access_id": str(made.id)}


def decided(site: Site) -> Values:
    return {"number": a_decision(timezone.now()).id}


def with_platform_budget(site: Site) -> Values:
    terms = BudgetTerms(Period(date(2040, 1, 1), date(2040, 2, 1)), Decimal(900))
    owner = BudgetOwner(None)
    made = budget_put(actor_id=None, owner=owner, terms=terms, now=timezone.now())
    rungs = [Rung("spent", 90, "notify")]
    ladder_set(actor_id=None, budget=made, rungs=rungs, now=timezone.now())
    return {"budget_id": str(made.id)}


def drained(site: Site) -> Values:
    Node.objects.update(state=Node.State.DRAINING)
    return {}


def enrolled(site: Site) -> Values:
    Node.objects.update(link_digest=b"x" * 32, key_version=1, key_confirmed=1, agent_version="9.0")
    return {}


def engaged(site: Site) -> Values:
    """An engine that has reported a host."""
    rack = Rack.objects.get_or_create(name="z9")[0]
    engine = EngineAgent.objects.create(
        name="main", rack=rack, engine="slurm", link_digest=b"e" * 32, created=timezone.now()
    )
    gpu = Gpu.objects.select_related("model").first()
    assert gpu is not None
    found = {"index": 0, "uuid": "GPU-n9", "name": gpu.model.product_name, "memory_mb": 1, "mode": "whole"}
    found |= {"mig_capable": False, "numa": None, "pci": "", "nvlink_domain": None}
    host = {"hostname": "n9", "driver": "Slurm", "agent": "0.9", "boot": "b", "cores": 1, "memory_mb": 1}
    inventory = host | {"gpus": [found], "engine": "slurm"}
    with as_role("portal_ops"):
        EngineHost.objects.create(engine=engine, name="n9", since=timezone.now(), inventory=inventory)
    return {"name": "main"}


def ill(site: Site) -> Values:
    Gpu.objects.filter(index=0).update(health=Gpu.Health.DRAINING, health_reason="Xid 79")
    return {"gpu_id": str(Gpu.objects.get(index=0).id)}


def of_gpu(site: Site) -> Values:
    return {"gpu_id": str(Gpu.objects.get(index=0).id)}


def jumped(site: Site) -> Values:
    day = timedelta(days=1)
    MachineClock.objects.create(machine="portal", clock_offset=day, jump=day)
    return {}


def maintained(site: Site) -> Values:
    now = timezone.now()
    wanted = MaintenanceTerms(now + HOUR, now + 2 * HOUR, "New fans", node=NODE)
    made = maintenance_plan(operator=site.people["operator"], terms=wanted, now=now)
    return {"maintenance_id": str(made.id)}


def of_tenant(site: Site) -> Values:
    return {"tenant": str(site.tenant.id)}


def quota_typed(site: Site) -> Values:
    return {f"guaranteed:h100:{site.tenant.id}": "5"}


def closed(site: Site) -> Values:
    site.tenant.is_open = False
    site.tenant.save(update_fields=["is_open"])
    return of_tenant(site)


def of_viewer(site: Site) -> Values:
    return {"user": site.people["viewer"].pk}


def closed_viewer(site: Site) -> Values:
    with as_owner():
        User.objects.filter(id=site.people["viewer"].pk).update(is_active=False)
    return of_viewer(site)


def viewers_factor(site: Site) -> Values:
    with as_owner():
        SecondFactor.objects.create(
            user=site.people["viewer"], salt=b"s", created=timezone.now(), confirmed=timezone.now()
        )
    return of_viewer(site)


def with_l9(site: Site) -> Values:
    GpuClass.objects.create(slug="l8", label="L8")
    GpuModel.objects.create(slug="l9", product_name="NVIDIA L9", gpu_class_id="h100", memory_mb=1_000)
    return {}


def trained(site: Site) -> Values:
    WorkSpeed.objects.create(workload="training", gpu_class_id="h100", thousandths=1000)
    return {"slug": "training"}


def limited(site: Site) -> Values:
    made = tenant_window_add(
        operator=site.people["operator"],
        tenant=site.tenant,
        gpu_class="h100",
        terms=WindowTerms(448_000),
        now=timezone.now(),
    )
    return {"window_id": str(made.id)}


def on_its_own(site: Site) -> Values:
    Node.objects.update(unbooked_override=True)
    return {}


def proposed(site: Site) -> Values:
    """Two slices on two GPUs, the only ones in service, and a booking that waits for a whole."""
    now = timezone.now().replace(microsecond=0)
    Gpu.objects.filter(index__gt=1).update(health=Gpu.Health.LOST)
    for gpu in Gpu.objects.filter(index__lte=1):
        began = now - 2 * HOUR
        running = a_booking(
            site.project,
            site.people["researcher"].id,
            state=State.ACTIVE,
            hours=6,
            starts=began,
            ask=an_ask(1, profile="1g.10gb", hours=6),
            now=now,
        )
        an_allocation(
            running,
            gpu,
            profile="1g.10gb",
            ends=now + 4 * HOUR,
            starts=began,
            state=Allocation.State.ACTIVE,
        )
    a_booking(site.project, site.people["researcher"].id, starts=now, now=now)
    Tier.objects.update(pausable=True, grace_seconds=120)
    return {"proposal": compaction_proposals(now)[0].key}


def announced(site: Site) -> Values:
    _begun(site, PortalMode.Kind.OUTAGE)
    return {}


def frozen(site: Site) -> Values:
    _begun(site, PortalMode.Kind.FREEZE)
    return {}


def _begun(site: Site, kind: str) -> None:
    now = timezone.now()
    PortalMode.objects.create(
        kind=kind, since=now, until=now + HOUR, reason="x", begun_by=site.people["operator"]
    )


def stopped(site: Site) -> Values:
    now = timezone.now()
    stop = Stop.objects.create(
        scope="tier", tier_id="spot", since=now, reason="x", begun_by=site.people["operator"]
    )
    return {"stop_id": str(stop.id)}


def failed(site: Site) -> Values:
    FailureLog("jira", timezone.now()).note(7, KeyError("x"), tenant_id=site.tenant.id)
    return {"failed_id": str(FailedMessage.objects.get().id)}


def new_tier(site: Site) -> Values:
    Tier.objects.create(slug="gold", name="Gold", priority=300)
    return {}


def _draft(site: Site, author: User) -> Values:
    terms = DraftTerms.of_book(PriceBook.objects.get())
    prices = {key: price + 1 for key, price in terms.prices.items()}
    terms = replace(terms, prices=prices)
    with as_role("portal_ops"):
        draft = price_draft_create(author_id=author.pk, terms=terms, now=timezone.now())
    return {"draft_id": str(draft.id), "revision": 1}


def my_draft(site: Site) -> Values:
    """A draft that the operator wrote."""
    return _draft(site, site.people["operator"])


def outdated_draft(site: Site) -> Values:
    values, now = my_draft(site), timezone.now()
    prices = {("h100", "standard"): Decimal(8), ("h100", "spot"): Decimal(9)}
    price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
    return values


def another_draft(site: Site) -> Values:
    return _draft(site, an_operator())


def demanded(site: Site) -> Values:
    row = Requirement.objects.create(
        gpu_class_id="h100",
        kind="terms",
        name="Fair use",
        text="x",
        version=1,
        created=timezone.now(),
        created_by=site.people["operator"],
    )
    return {"requirement": str(row.id), "requirement_id": str(row.id)}


def booked(site: Site) -> Values:
    return {"booking": str(a_booking(site.project, site.people["researcher"].id).id)}


def pausable(site: Site) -> Values:
    """A running booking in a tier that can be paused, past its protected time."""
    now = timezone.now()
    booking = a_booking(
        site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now - HOUR, now=now
    )
    Tier.objects.update(pausable=True)
    an_allocation(
        booking,
        Gpu.objects.get(index=0),
        starts=now - HOUR,
        ends=now + HOUR,
        state=Allocation.State.ACTIVE,
    )
    return {"booking": str(booking.id)}


def over(site: Site) -> Values:
    """A booking that was charged 2 of what it held."""
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ENDED, now=now)
    hold_place(
        tenant_id=site.tenant.id,
        project_id=site.project.id,
        reference=booking.id,
        amount=booking.hold_amount,
        starts=now,
        ends=now + HOUR,
        now=now,
    )
    booking.charged = hold_settle(tenant_id=site.tenant.id, reference=booking.id, amount=Decimal(2), now=now)
    booking.save(update_fields=["charged"])
    return {"booking": booking.label}


def disputed(site: Site) -> Values:
    """A statement that its lead disputes; the id is of the form's field and of the address."""
    now = timezone.now() - HOUR
    row = StatementDispute.objects.create(
        tenant=site.tenant,
        project=site.project,
        month=now.date().replace(day=1),
        note="Too much.",
        raised_at=now,
        raised_by=site.people["lead"],
    )
    return {"dispute": str(row.id), "dispute_id": str(row.id)}


def contested(site: Site) -> Values:
    """A pause that the researcher contests, and operators answer."""
    row = an_open_appeal(site.project, site.people["researcher"].pk, timezone.now() - HOUR)
    return {"appeal_id": str(row.id)}


def cut(site: Site) -> Values:
    """A cut of a project's limit, which operators may cancel, too."""
    row = a_limit_cut(site.project, timezone.now() - HOUR)
    return {"cut": str(row.id), "cut_id": str(row.id)}


def asked_for_more(site: Site) -> Values:
    """A request for more than an organisation may use; operators decide."""
    row = Override.objects.create(
        tenant=site.tenant,
        kind="quota",
        gpu_class_id="h100",
        amount=56_000,
        asked_by=site.people["lead"],
        asked=timezone.now() - HOUR,
        decider="operator",
    )
    return {"override": str(row.id), "override_id": str(row.id)}


def given_more(site: Site) -> Values:
    values, now = asked_for_more(site), timezone.now()
    Override.objects.filter(id=values["override"]).update(
        state="granted",
        decided=now,
        decided_by=site.people["operator"],
        starts=now,
        until=now + 24 * HOUR,
    )
    return values
