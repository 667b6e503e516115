"""What operators can do: one example of each act, and what it writes into the log."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from allocation.models import (
    Allocation,
    Gpu,
    GpuModel,
    MachineClock,
    Node,
    Override,
    PortalMode,
    Requirement,
    StatementDispute,
    Stop,
    WorkSpeed,
)
from allocation.rules.states import State
from allocation.services.decide.compaction import compaction_proposals
from allocation.services.operate.maintenance import MaintenanceTerms, maintenance_plan
from allocation.services.policy.policies import policy_draft, policy_values
from allocation.web.site.policy import policy_text
from billing.models import PriceBook
from billing.services import (
    DraftTerms,
    hold_place,
    hold_settle,
    price_book_publish,
    price_draft_create,
)
from tenants.models import GpuClass, SecondFactor, Tier, User
from tenants.services.announcements import AnnouncementTerms, announcement_publish
from tenants.services.labs.windows import WindowTerms, tenant_window_add
from tenants.services.operator_access import AccessTerms, access_begin
from tests.api.builders import Site
from tests.builders import an_operator
from tests.builders_allocation import HOUR, a_booking, an_allocation, an_ask
from tests.builders_pauses import a_decision

NODE = "gpu-a1-01"

Values = dict[str, Any]


@dataclass(frozen=True)
class Act:
    """What is sent, what it writes, and about what. `made` prepares the site and returns more
    values: those of the address by their names there, the rest of the form or the body."""

    action: str
    kind: str
    values: Values = field(default_factory=dict)
    made: Callable[[Site], Values] = lambda site: {}
    has_before: bool = True
    has_after: bool = True


def _drafted(site: Site) -> Values:
    draft = policy_draft(document={"grid": 600}, now=timezone.now())
    return {"number": draft.number}


def _announced_to_all(site: Site) -> Values:
    now = timezone.now()
    terms = AnnouncementTerms("Cables are replaced.", "info", now, now + HOUR)
    made = announcement_publish(operator=site.people["operator"], terms=terms, now=now)
    return {"announcement": str(made.id), "announcement_id": str(made.id)}


def _accessed(site: Site) -> Values:
    terms = AccessTerms(site.tenant.slug, "Help", HOUR)
    made = access_begin(operator=site.people["operator"], terms=terms, now=timezone.now())
    return {"access": str(made.id), "access_id": str(made.id)}


def _decided(site: Site) -> Values:
    return {"number": a_decision(timezone.now()).id}


def _drained(site: Site) -> Values:
    Node.objects.update(state=Node.State.DRAINING)
    return {}


def _enrolled(site: Site) -> Values:
    Node.objects.update(link_digest=b"x" * 32, key_version=1, key_confirmed=1, agent_version="9.0")
    return {}


def _ill(site: Site) -> Values:
    Gpu.objects.filter(index=0).update(health=Gpu.Health.DRAINING, health_reason="Xid 79")
    return {"gpu_id": str(Gpu.objects.get(index=0).id)}


def _of_gpu(site: Site) -> Values:
    return {"gpu_id": str(Gpu.objects.get(index=0).id)}


def _jumped(site: Site) -> Values:
    day = timedelta(days=1)
    MachineClock.objects.create(machine="portal", clock_offset=day, jump=day)
    return {}


def _maintained(site: Site) -> Values:
    now = timezone.now()
    wish = MaintenanceTerms(now + HOUR, now + 2 * HOUR, "New fans", node=NODE)
    made = maintenance_plan(operator=site.people["operator"], terms=wish, now=now)
    return {"maintenance_id": str(made.id)}


def _of_tenant(site: Site) -> Values:
    return {"tenant": str(site.tenant.id)}


def _closed(site: Site) -> Values:
    site.tenant.is_open = False
    site.tenant.save(update_fields=["is_open"])
    return _of_tenant(site)


def _of_viewer(site: Site) -> Values:
    return {"user": site.people["viewer"].pk}


def _closed_viewer(site: Site) -> Values:
    User.objects.filter(id=site.people["viewer"].pk).update(is_active=False)
    return _of_viewer(site)


def _viewers_factor(site: Site) -> Values:
    SecondFactor.objects.create(
        user=site.people["viewer"], salt=b"s", created=timezone.now(), confirmed=timezone.now()
    )
    return _of_viewer(site)


def _with_l9(site: Site) -> Values:
    GpuClass.objects.create(slug="l8", label="L8")
    GpuModel.objects.create(
        slug="l9", product_name="NVIDIA L9", gpu_class_id="h100", memory_mb=1_000
    )
    return {}


def _trained(site: Site) -> Values:
    WorkSpeed.objects.create(workload="training", gpu_class_id="h100", thousandths=1000)
    return {"slug": "training"}


def _limited(site: Site) -> Values:
    made = tenant_window_add(
        operator=site.people["operator"],
        tenant=site.tenant,
        gpu_class="h100",
        terms=WindowTerms(448_000),
        now=timezone.now(),
    )
    return {"window_id": str(made.id)}


def _on_its_own(site: Site) -> Values:
    Node.objects.update(unbooked_override=True)
    return {}


def _proposed(site: Site) -> Values:
    """Two slices on two GPUs, the only ones in service, and a booking that waits for a whole."""
    now = timezone.now().replace(microsecond=0)
    Gpu.objects.filter(index__gt=1).update(health=Gpu.Health.LOST)
    for gpu in Gpu.objects.filter(index__lte=1):
        began = now - 2 * HOUR
        running = a_booking(
            site.project, site.people["researcher"].id, state=State.ACTIVE, hours=6, starts=began,
            ask=an_ask(1, profile="1g.10gb", hours=6), now=now,
        )  # fmt: skip
        an_allocation(
            running, gpu, profile="1g.10gb", ends=now + 4 * HOUR, starts=began,
            state=Allocation.State.ACTIVE,
        )  # fmt: skip
    a_booking(site.project, site.people["researcher"].id, starts=now, now=now)
    Tier.objects.update(pausable=True, grace_seconds=120)
    return {"proposal": compaction_proposals(now)[0].key}


def _announced(site: Site) -> Values:
    _begun(site, PortalMode.Kind.OUTAGE)
    return {}


def _frozen(site: Site) -> Values:
    _begun(site, PortalMode.Kind.FREEZE)
    return {}


def _begun(site: Site, kind: str) -> None:
    now = timezone.now()
    PortalMode.objects.create(
        kind=kind, since=now, until=now + HOUR, reason="x", begun_by=site.people["operator"]
    )


def _stopped(site: Site) -> Values:
    now = timezone.now()
    stop = Stop.objects.create(
        scope="tier", tier_id="spot", since=now, reason="x", begun_by=site.people["operator"]
    )
    return {"stop_id": str(stop.id)}


def _new_tier(site: Site) -> Values:
    Tier.objects.create(slug="gold", name="Gold", priority=300)
    return {}


def _draft(site: Site, author: User) -> Values:
    terms = DraftTerms.of_book(PriceBook.objects.get())
    prices = {key: price + 1 for key, price in terms.prices.items()}
    draft = price_draft_create(
        author_id=author.pk, terms=replace(terms, prices=prices), now=timezone.now()
    )
    return {"draft_id": str(draft.id), "revision": 1}


def my_draft(site: Site) -> Values:
    """A draft that the operator wrote."""
    return _draft(site, site.people["operator"])


def _outdated_draft(site: Site) -> Values:
    values, now = my_draft(site), timezone.now()
    prices = {("h100", "standard"): Decimal(8), ("h100", "spot"): Decimal(9)}
    price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
    return values


def _another_draft(site: Site) -> Values:
    return _draft(site, an_operator())


def _demanded(site: Site) -> Values:
    row = Requirement.objects.create(
        gpu_class_id="h100", kind="terms", name="Fair use", text="x", version=1,
        created=timezone.now(), created_by=site.people["operator"],
    )  # fmt: skip
    return {"requirement": str(row.id), "requirement_id": str(row.id)}


def _booked(site: Site) -> Values:
    return {"booking": str(a_booking(site.project, site.people["researcher"].id).id)}


def _pausable(site: Site) -> Values:
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


def _over(site: Site) -> Values:
    """A booking that was charged 2 of what it held."""
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ENDED, now=now)
    hold_place(
        tenant_id=site.tenant.id, project_id=site.project.id, reference=booking.id,
        amount=booking.hold_amount, starts=now, ends=now + HOUR, now=now,
    )  # fmt: skip
    booking.charged = hold_settle(
        tenant_id=site.tenant.id, reference=booking.id, amount=Decimal(2), now=now
    )
    booking.save(update_fields=["charged"])
    return {"booking": booking.label}


def _disputed(site: Site) -> Values:
    """A statement that its lead disputes; the id is of the form's field and of the address."""
    now = timezone.now() - HOUR
    row = StatementDispute.objects.create(
        tenant=site.tenant, project=site.project, month=now.date().replace(day=1),
        note="Too much.", raised_at=now, raised_by=site.people["lead"],
    )  # fmt: skip
    return {"dispute": str(row.id), "dispute_id": str(row.id)}


def _asked_for_more(site: Site) -> Values:
    """A request for more than an organisation may use; operators decide."""
    row = Override.objects.create(
        tenant=site.tenant, kind="quota", gpu_class_id="h100", amount=56_000,
        asked_by=site.people["lead"], asked=timezone.now() - HOUR, decider="operator",
    )  # fmt: skip
    return {"override": str(row.id), "override_id": str(row.id)}


def _given_more(site: Site) -> Values:
    values, now = _asked_for_more(site), timezone.now()
    Override.objects.filter(id=values["override"]).update(
        state="granted", decided=now, decided_by=site.people["operator"], starts=now,
        until=now + 24 * HOUR,
    )  # fmt: skip
    return values


_WINDOW = {
    "starts": (timezone.now() + HOUR).isoformat(timespec="minutes")[:16],
    "ends": (timezone.now() + 3 * HOUR).isoformat(timespec="minutes")[:16],
}
_INSTANTS = {name: f"{text}:00Z" for name, text in _WINDOW.items()}
_TIER_PAGE = {
    "slug": "standard", "name": "Standard", "priority": "60", "grace": "10m", "protected": "0",
    "max_duration": "7d", "advance": "28d", "credit_cap": "4h", "more_times": "0",
    "more_time": "0", "counts": "on",
}  # fmt: skip
_TIER = {
    "name": "Standard", "priority": 60, "pausable": False, "grace_seconds": 600,
    "protected_seconds": 0, "max_duration_seconds": 86_400, "advance_seconds": 86_400,
}  # fmt: skip
_PRICES = [
    {"gpu_class": "h100", "tier": tier, "per_gpu_hour": "5.00"} for tier in ("standard", "spot")
]
_PRICES_OF_NEW = [
    {"gpu_class": "h100", "tier": tier, "per_gpu_hour": price}
    for tier, price in (("standard", "4.80"), ("spot", "1.68"), ("gold", "9"))
]
_NOTE = {"note": "pulled the plug"}
_ACCOUNT = {"username": "nina", "name": "Nina", "email": "", "password": "correct horse battery"}

_CORRECTION = {"tenant": "helix", "amount": "1.5", "reason": "The node lied."}
_TRAINING = {"kind": "training", "name": "Safety", "text": "Ask."}
_ANNOUNCEMENT = {
    "text": "Cables are replaced.",
    "level": "info",
    "until": (timezone.now() + 2 * HOUR).isoformat(),
}
_OUTAGE = {"for": "20m", "reason": "x"}
_POLICY = {
    name: policy_text(name, value) for name, value in (policy_values({}) | {"grid": 600}).items()
}

ACTS: dict[str, Act] = {
    "ops/fleet/<slug:name>/drain": Act("node.drained", "node", {"reason": "fans"}),
    "ops/fleet/<slug:name>/ready": Act("node.approved", "node", made=_drained),
    "ops/fleet/<slug:name>/revoke": Act("node.locked_out", "node", made=_enrolled),
    "ops/fleet/<slug:name>/rotate-key": Act("node.key_rotated", "node", made=_enrolled),
    "ops/fleet/<slug:name>/fence": Act("node.fenced", "node", _NOTE, _drained),
    "ops/fleet/<slug:name>/unbooked": Act("node.ladder_set", "node", {"warn": "", "end": ""}),
    "ops/fleet/<slug:name>/<int:index>/return": Act("gpu.returned", "node", _NOTE, _ill),
    "ops/fleet/<slug:name>/<int:index>/mode": Act(
        "node.gpu_mode_pinned", "node", {"mode": "whole"}
    ),
    "ops/install": Act(
        "node.enrolment_token_made",
        "node",
        {"node_name": "gpu-z9-01", "rack_name": "z9"},
        has_before=False,
    ),
    "ops/clock": Act("clock.accepted", "clock", made=_jumped),
    "ops/maintenance": Act(
        "maintenance.planned",
        "maintenance",
        {"act": "save", "where": f"node:{NODE}", "reason": "fans", **_WINDOW},
        has_before=False,
    ),
    "ops/maintenance/<uuid:maintenance_id>/end": Act(
        "maintenance.ended", "maintenance", made=_maintained
    ),
    "ops/compaction": Act(
        "compaction.ordered", "compaction_order", made=_proposed, has_before=False
    ),
    "ops/bookings message": Act(
        "booking.message_sent",
        "booking",
        {"text": "Please release what you do not need."},
        _booked,
        has_before=False,
    ),
    "ops/bookings release": Act(
        "booking.release_asked", "booking", {"text": "An audit"}, _booked, has_before=False
    ),
    "ops/bookings pause": Act(
        "booking.pause_ordered",
        "booking",
        {"text": "An audit", "length": "4h"},
        _pausable,
        has_before=False,
    ),
    "post api/v1/fleet/bookings/acts": Act(
        "booking.release_asked",
        "booking",
        {"act": "release", "text": "An audit", "bookings": []},
        lambda site: {"bookings": [_booked(site)["booking"]]},
        has_before=False,
    ),
    "ops/corrections refund": Act("booking.corrected", "booking", _CORRECTION, _over),
    "ops/corrections charge": Act(
        "booking.corrected", "booking", _CORRECTION | {"amount": "0.1"}, _over
    ),
    "post api/v1/corrections": Act(
        "booking.corrected", "booking", _CORRECTION | {"kind": "refund", "booking": ""}, _over
    ),
    "ops/disputes accept": Act("dispute.answered", "dispute", {"answer": "Yes."}, _disputed),
    "ops/disputes decline": Act("dispute.answered", "dispute", {"answer": "No."}, _disputed),
    "ops/overrides grant": Act(
        "override.granted", "override", {"amount": "1"}, _asked_for_more, has_before=False
    ),
    "ops/overrides decline": Act(
        "override.declined", "override", {"reason": "No."}, _asked_for_more, has_before=False
    ),
    "ops/overrides end": Act("override.ended", "override", {}, _given_more, has_before=False),
    "post api/v1/disputes/<uuid:dispute_id>/answer": Act(
        "dispute.answered", "dispute", {"outcome": "accepted", "answer": "Yes."}, _disputed
    ),
    "ops/prices": Act("prices.drafted", "price_draft", has_before=False),
    "ops/prices/drafts/<uuid:draft_id> save": Act(
        "prices.draft_changed",
        "price_draft",
        {"price-h100-standard": "7", "price-h100-spot": "2", "valid_from": "", "note": ""},
        my_draft,
    ),
    "ops/prices/drafts/<uuid:draft_id> rebase": Act(
        "prices.draft_changed", "price_draft", made=_outdated_draft
    ),
    "ops/prices/drafts/<uuid:draft_id> discard": Act(
        "prices.draft_discarded", "price_draft", made=_another_draft
    ),
    "ops/prices/drafts/<uuid:draft_id> publish": Act(
        "prices.published", "price_book", made=_another_draft
    ),
    "post api/v1/price-books/drafts": Act(
        "prices.drafted", "price_draft", {"prices": _PRICES}, has_before=False
    ),
    "put api/v1/price-books/drafts/<uuid:draft_id>": Act(
        "prices.draft_changed", "price_draft", {"prices": _PRICES}, my_draft
    ),
    "post api/v1/price-books/drafts/<uuid:draft_id>/rebase": Act(
        "prices.draft_changed", "price_draft", made=_outdated_draft
    ),
    "post api/v1/price-books/drafts/<uuid:draft_id>/discard": Act(
        "prices.draft_discarded", "price_draft", made=_another_draft
    ),
    "post api/v1/price-books/drafts/<uuid:draft_id>/publish": Act(
        "prices.published", "price_book", {"revision": 1}, _another_draft
    ),
    "ops/policy": Act("policy.published", "policy", _POLICY),
    "ops/speeds set": Act(
        "workload.set", "workload", {"workload": "training", "speed-h100": "2"}, _trained
    ),
    "ops/tiers set": Act("tier.set", "tier", _TIER_PAGE),
    "ops/quotas set": Act(
        "quota.set", "quota", {"gpu_class": "h100", "guaranteed": "5"}, _of_tenant
    ),
    "ops/quotas more": Act(
        "quota.set",
        "quota",
        {"gpu_class": "h100", "weight": "3", "cap": "10", "days": "7"},
        _of_tenant,
    ),
    "ops/tenants create": Act(
        "tenant.created",
        "tenant",
        {"slug": "new", "name": "New", "username": "mara"},
        has_before=False,
    ),
    "ops/tenants open": Act("tenant.opened", "tenant", made=_closed),
    "ops/tenants close": Act("tenant.closed", "tenant", made=_of_tenant),
    "ops/tenants admin": Act(
        "tenant.admin_invited", "tenant", {"to": "mara"}, _of_tenant, has_before=False
    ),
    "ops/tenants account": Act("account.created", "user", _ACCOUNT, has_before=False),
    "ops/accounts close": Act("account.closed", "user", made=_of_viewer),
    "ops/accounts open": Act("account.opened", "user", made=_closed_viewer),
    "ops/accounts factor": Act("second_factor.removed", "user", made=_viewers_factor),
    "ops/accounts erase": Act("account.erased", "user", made=_closed_viewer),
    "ops/portal begin": Act("outage.begun", "portal_mode", _OUTAGE, has_before=False),
    "ops/portal close": Act("outage.closed", "portal_mode", made=_announced),
    "ops/portal end": Act("outage.ended", "portal_mode", made=_announced),
    "ops/portal freeze": Act("freeze.begun", "portal_mode", {"reason": "x"}, has_before=False),
    "ops/portal thaw": Act("freeze.ended", "portal_mode", made=_frozen),
    "ops/access begin": Act(
        "access.opened",
        "operator_access",
        {"tenant": "helix", "reason": "Help", "for": "60"},
        has_before=False,
    ),
    "ops/access end": Act("access.ended", "operator_access", made=_accessed, has_before=False),
    "post api/v1/operator-access": Act(
        "access.opened",
        "operator_access",
        {"tenant": "helix", "reason": "Help", "length": "PT1H"},
        has_before=False,
    ),
    "post api/v1/operator-access/<uuid:access_id>/end": Act(
        "access.ended", "operator_access", made=_accessed, has_before=False
    ),
    "ops/announcements publish": Act(
        "announcement.published", "announcement", _ANNOUNCEMENT, has_before=False
    ),
    "ops/announcements withdraw": Act(
        "announcement.withdrawn", "announcement", made=_announced_to_all, has_before=False
    ),
    "post api/v1/announcements": Act(
        "announcement.published", "announcement", _ANNOUNCEMENT, has_before=False
    ),
    "post api/v1/announcements/<uuid:announcement_id>/withdraw": Act(
        "announcement.withdrawn", "announcement", made=_announced_to_all, has_before=False
    ),
    "ops/stops": Act(
        "stop.begun", "stop", {"what": "tier:spot", "reason": "x", "for": "2h"}, has_before=False
    ),
    "ops/decisions/<int:number>/replay": Act(
        "decision.replayed", "decision", made=_decided, has_before=False
    ),
    "post api/v1/decisions/<int:number>/replay": Act(
        "decision.replayed", "decision", made=_decided, has_before=False
    ),
    "ops/stops/<uuid:stop_id>/end": Act("stop.ended", "stop", made=_stopped),
    "post api/v1/stops": Act(
        "stop.begun", "stop", {"scope": "site", "reason": "x"}, has_before=False
    ),
    "ops/requirements set": Act("requirement.set", "requirement", _TRAINING | {"target": "h100"}),
    "ops/requirements end": Act("requirement.ended", "requirement", made=_demanded),
    "post api/v1/requirements": Act(
        "requirement.set", "requirement", {"of": "class", "target": "h100", **_TRAINING}
    ),
    "post api/v1/requirements/<uuid:requirement_id>/end": Act(
        "requirement.ended", "requirement", made=_demanded
    ),
    "post api/v1/stops/<uuid:stop_id>/end": Act("stop.ended", "stop", made=_stopped),
    "post api/v1/portal/outage": Act(
        "outage.begun", "portal_mode", {"length": "PT20M", "reason": "x"}, has_before=False
    ),
    "post api/v1/portal/outage/close": Act("outage.closed", "portal_mode", made=_announced),
    "post api/v1/portal/outage/end": Act("outage.ended", "portal_mode", made=_announced),
    "post api/v1/portal/freeze": Act(
        "freeze.begun", "portal_mode", {"reason": "x"}, has_before=False
    ),
    "post api/v1/policy/versions": Act("policy.drafted", "policy", {"document": {"grid": 600}}),
    "post api/v1/policy/versions/<int:number>/activate": Act(
        "policy.published", "policy", made=_drafted
    ),
    "post api/v1/portal/freeze/end": Act("freeze.ended", "portal_mode", made=_frozen),
    "put api/v1/fleet/nodes/<slug:name>": Act(
        "node.ladder_follows_policy", "node", {"unbooked_rules_from": "policy"}, _on_its_own
    ),
    "post api/v1/fleet/nodes/<slug:name>/drain": Act("node.drained", "node", {"reason": "fans"}),
    "post api/v1/fleet/nodes/<slug:name>/ready": Act("node.approved", "node", made=_drained),
    "post api/v1/fleet/nodes/<slug:name>/revoke": Act("node.locked_out", "node", made=_enrolled),
    "post api/v1/fleet/nodes/<slug:name>/rotate-key": Act(
        "node.key_rotated", "node", made=_enrolled
    ),
    "post api/v1/fleet/nodes/<slug:name>/fence": Act("node.fenced", "node", _NOTE, _drained),
    "put api/v1/fleet/gpus/<uuid:gpu_id>": Act(
        "node.gpu_mode_pinned", "node", {"mode_pinned": "whole"}, _of_gpu
    ),
    "post api/v1/fleet/gpus/<uuid:gpu_id>/return": Act("gpu.returned", "node", _NOTE, _ill),
    "post api/v1/maintenance": Act(
        "maintenance.planned",
        "maintenance",
        {"node": NODE, "reason": "fans", **_INSTANTS},
        has_before=False,
    ),
    "post api/v1/maintenance/<uuid:maintenance_id>/end": Act(
        "maintenance.ended", "maintenance", made=_maintained
    ),
    "post api/v1/compaction/orders": Act(
        "compaction.ordered", "compaction_order", made=_proposed, has_before=False
    ),
    "post api/v1/fleet/enrolments": Act(
        "node.enrolment_token_made", "node", {"node": "gpu-z9-01", "rack": "z9"}, has_before=False
    ),
    "post api/v1/price-books": Act(
        "prices.published", "price_book", {"prices": _PRICES_OF_NEW}, _new_tier
    ),
    "put api/v1/tiers/<slug:slug>": Act("tier.set", "tier", _TIER),
    "put api/v1/quotas": Act(
        "quota.set", "quota", {"tenant": "helix", "gpu_class": "h100", "guaranteed_units": 448_000}
    ),
    "post api/v1/quota-windows": Act(
        "quota_window.added",
        "quota_window",
        {"tenant": "helix", "gpu_class": "h100", "limit_units": 448_000},
        has_before=False,
    ),
    "delete api/v1/quota-windows/<uuid:window_id>": Act(
        "quota_window.removed", "quota_window", made=_limited, has_after=False
    ),
    "put api/v1/workloads/<slug:slug>": Act(
        "workload.set", "workload", {"speeds": {"h100": 500}}, _trained
    ),
    "manage.py clock_accept": Act("clock.accepted", "clock", made=_jumped),
    "manage.py enrol_token": Act(
        "node.enrolment_token_made", "node", {"node": "gpu-z9-01"}, has_before=False
    ),
    "manage.py epoch_raise": Act("epoch.raised", "epoch"),
    "manage.py freeze": Act("freeze.ended", "portal_mode", {"entries": ["end"]}, _frozen),
    "manage.py outage": Act("outage.ended", "portal_mode", {"entries": ["end"]}, _announced),
    "manage.py policy": Act("policy.published", "policy", {"entries": ["grid=600"]}),
    "manage.py rotate_key": Act("node.key_rotated", "node", {"node": NODE}, _enrolled),
}
_MODEL = {
    "product_name": "NVIDIA H100 80GB HBM3", "gpu_class": "h100", "memory_mb": 81_559,
    "switch_seconds": 12,
}  # fmt: skip
_NAMED = {
    "slug": "l9", "gpu_class": "l9", "label": "L9", "product_name": "NVIDIA L9",
    "memory_mb": "1000", "switch_seconds": "0",
}  # fmt: skip
_CATALOGUE = {
    "model-shipped": Act("gpu_model.set", "gpu_model", {"slug": "l4"}, has_before=False),
    "model-name": Act("gpu_model.set", "gpu_model", _NAMED, has_before=False),
    "model-set": Act("gpu_model.set", "gpu_model", {"slug": "h100-80gb", **_MODEL}),
    "model-remove": Act(
        "gpu_model.removed", "gpu_model", {"slug": "l9"}, _with_l9, has_after=False
    ),
    "class-set": Act("gpu_class.set", "gpu_class", {"slug": "h100", "label": "H100 new"}),
    "class-remove": Act(
        "gpu_class.removed", "gpu_class", {"slug": "l8"}, _with_l9, has_after=False
    ),
}
ACTS |= {
    f"ops/{page} {name}": act for page in ("catalogue", "setup") for name, act in _CATALOGUE.items()
}
ACTS |= {
    "ops/setup approve": Act("node.approved", "node", {"node": NODE}, _drained),
    "ops/setup prices": Act(
        "prices.published",
        "price_book",
        {"price-h100-standard": "4.80", "price-h100-spot": "1.68", "price-h100-gold": "9"},
        _new_tier,
    ),
    "ops/setup quotas": Act("quota.set", "quota", {"quota-h100": "5"}, _of_tenant),
    "ops/setup tiers-usual": Act("tier.set", "tier", has_before=False),
    "post api/v1/tenants": Act(
        "tenant.created",
        "tenant",
        {"slug": "new", "name": "New", "username": "nina", "admin_name": "Nina"},
        has_before=False,
    ),
    "put api/v1/gpu-classes/<slug:slug>": Act(
        "gpu_class.set", "gpu_class", {"label": "H100 new"}, lambda site: {"slug": "h100"}
    ),
    "delete api/v1/gpu-classes/<slug:slug>": Act(
        "gpu_class.removed", "gpu_class", {}, lambda site: _with_l9(site) | {"slug": "l8"},
        has_after=False,
    ),
    "put api/v1/gpu-models/<slug:slug>": Act(
        "gpu_model.set", "gpu_model", _MODEL, lambda site: {"slug": "h100-80gb"}
    ),
    "delete api/v1/gpu-models/<slug:slug>": Act(
        "gpu_model.removed", "gpu_model", {}, lambda site: _with_l9(site) | {"slug": "l9"},
        has_after=False,
    ),
}  # fmt: skip
# The same as the act named, once for each model that waits for it: without any, nothing is done.
AS_ANOTHER = {"ops/catalogue models-known", "ops/setup models-known"}
# They answer a question by a POST, and write nothing.
ASKING = {
    "post api/v1/fleet/bookings/acts/preview",
    "post api/v1/maintenance/preview",
    "post api/v1/stops/preview",
}
PLACES = {"name": NODE, "index": "0", "slug": "standard", "number": "1"}
