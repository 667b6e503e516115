"""What operators can do: one example of each act, and what it writes into the log."""

from django.utils import timezone

from allocation.services.policy.differences import policy_text
from allocation.services.policy.policies import policy_values
from tests.builders_allocation import HOUR
from tests.web import operator_sites as sites
from tests.web.acts import Act
from tests.web.fleet_acts import FLEET_ACTS
from tests.web.guarantee_acts import GUARANTEE_ACTS
from tests.web.operator_sites import JOB, NODE, my_draft
from tests.web.role_acts import ROLE_ACTS
from tests.web.view_acts import VIEW_ACTS
from tests.web.webhook_acts import WEBHOOK_ACTS, WEBHOOK_MESSAGES

TRIAL = Act("policy.trial_asked", "policy", {"candidate": 1, "days": 2}, has_before=False)
NO_TRIAL = Act("policy.trial_cancelled", "policy", made=sites.on_trial)
_WINDOW = {
    "starts": (timezone.now() + HOUR).isoformat(timespec="minutes")[:16],
    "ends": (timezone.now() + 3 * HOUR).isoformat(timespec="minutes")[:16],
}
_INSTANTS = {name: f"{text}:00Z" for name, text in _WINDOW.items()}
_TIER_PAGE = {
    "slug": "standard",
    "name": "Standard",
    "priority": "60",
    "grace": "10m",
    "protected": "0",
    "max_duration": "7d",
    "advance": "28d",
    "credit_cap": "4h",
    "more_times": "0",
    "more_time": "0",
    "counts": "on",
}
_TIER = {
    "name": "Standard",
    "priority": 60,
    "pausable": False,
    "grace_seconds": 600,
    "protected_seconds": 0,
    "max_duration_seconds": 86_400,
    "advance_seconds": 86_400,
}
_PRICES = [{"gpu_class": "h100", "tier": tier, "per_gpu_hour": "5.00"} for tier in ("standard", "spot")]
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
_RUNG = {"measure": "spent", "percent": 80, "action": "notify", "audience": "admins"}
_OUTAGE = {"for": "20m", "reason": "x"}
_POLICY = {name: policy_text(name, value) for name, value in (policy_values({}) | {"grid": 600}).items()}

_ANSWER = {"outcome": "accepted", "answer": "It was a mistake."}
_ACCOUNT_OF = {"account": "physics", "project": "helix/folding"}
_TYPE_OF = {"type": "", "gpu_class": "h100"}
_JOBS = {
    "jobs": [{name: each if isinstance(each, str | int) else each.isoformat() for name, each in JOB.items()}]
}

ACTS: dict[str, Act] = {
    **VIEW_ACTS,
    **FLEET_ACTS,
    **GUARANTEE_ACTS,
    **dict.fromkeys(
        ("ops/clusters/<slug:slug> account", "put api/v1/clusters/<slug:slug>/accounts"),
        Act("cluster.account_assigned", "cluster", _ACCOUNT_OF, sites.observed),
    ),
    **dict.fromkeys(
        ("ops/clusters/<slug:slug> type", "put api/v1/clusters/<slug:slug>/types"),
        Act("cluster.type_assigned", "cluster", _TYPE_OF, sites.observed),
    ),
    "post api/v1/clusters/<slug:slug>/jobs": Act("cluster.observed", "cluster", _JOBS, has_before=False),
    "ops/machines release": Act("machine.released", "machine", made=sites.orphaned, has_before=False),
    "post api/v1/platform-machines/<uuid:machine_id>/release": Act(
        "machine.released", "machine", made=sites.orphaned, has_before=False
    ),
    "ops/fleet/<slug:name>/drain": Act("node.drained", "node", {"reason": "fans"}),
    "ops/fleet/<slug:name>/ready": Act("node.approved", "node", made=sites.drained),
    "ops/fleet/<slug:name>/revoke": Act("node.locked_out", "node", made=sites.enrolled),
    "ops/fleet/<slug:name>/rotate-key": Act("node.key_rotated", "node", made=sites.enrolled),
    "ops/fleet/<slug:name>/fence": Act("node.fenced", "node", _NOTE, sites.drained),
    "ops/fleet/<slug:name>/unbooked": Act("node.ladder_set", "node", {"warn": "", "end": ""}),
    "ops/fleet/<slug:name>/<int:index>/return": Act("gpu.returned", "node", _NOTE, sites.ill),
    "ops/fleet/<slug:name>/<int:index>/mode": Act("node.gpu_mode_pinned", "node", {"mode": "whole"}),
    "ops/install": Act(
        "node.enrolment_token_made",
        "node",
        {"node_name": "gpu-z9-01", "rack_name": "z9"},
        has_before=False,
    ),
    "ops/clock": Act("clock.accepted", "clock", made=sites.jumped),
    "ops/maintenance": Act(
        "maintenance.planned",
        "maintenance",
        {"act": "save", "where": f"node:{NODE}", "reason": "fans", **_WINDOW},
        has_before=False,
    ),
    "ops/maintenance/<uuid:maintenance_id>": Act(
        "maintenance.changed",
        "maintenance",
        {"act": "save", "reason": "other fans", **_WINDOW},
        sites.maintained,
    ),
    "ops/maintenance/<uuid:maintenance_id>/end": Act(
        "maintenance.ended", "maintenance", made=sites.maintained
    ),
    "ops/compaction": Act("compaction.ordered", "compaction_order", made=sites.proposed, has_before=False),
    "ops/bookings message": Act(
        "booking.message_sent",
        "booking",
        {"text": "Please release what you do not need."},
        sites.booked,
        has_before=False,
    ),
    "ops/bookings release": Act(
        "booking.release_asked", "booking", {"text": "An audit"}, sites.booked, has_before=False
    ),
    "ops/bookings pause": Act(
        "booking.pause_ordered",
        "booking",
        {"text": "An audit", "length": "4h"},
        sites.pausable,
        has_before=False,
    ),
    "post api/v1/fleet/bookings/acts": Act(
        "booking.release_asked",
        "booking",
        {"act": "release", "text": "An audit", "bookings": []},
        lambda site: {"bookings": [sites.booked(site)["booking"]]},
        has_before=False,
    ),
    "ops/corrections refund": Act("booking.corrected", "booking", _CORRECTION, sites.over),
    "ops/corrections charge": Act(
        "booking.corrected", "booking", _CORRECTION | {"amount": "0.1"}, sites.over
    ),
    "post api/v1/corrections": Act(
        "booking.corrected", "booking", _CORRECTION | {"kind": "refund", "booking": ""}, sites.over
    ),
    "ops/appeals/<uuid:appeal_id> answer": Act("appeal.answered", "appeal", _ANSWER, sites.contested),
    "ops/limit-cuts end": Act("limit_cut.ended", "limit_cut", {}, sites.cut, has_before=False),
    "post api/v1/platform/limit-cuts/<uuid:cut_id>/end": Act(
        "limit_cut.ended", "limit_cut", {}, sites.cut, has_before=False
    ),
    "ops/disputes answer": Act("dispute.answered", "dispute", _ANSWER, sites.disputed),
    "ops/overrides grant": Act(
        "override.granted", "override", {"amount": "1"}, sites.asked_for_more, has_before=False
    ),
    "ops/overrides decline": Act(
        "override.declined", "override", {"reason": "No."}, sites.asked_for_more, has_before=False
    ),
    "ops/overrides end": Act("override.ended", "override", {}, sites.given_more, has_before=False),
    "post api/v1/platform/pause-appeals/<uuid:appeal_id>/answer": Act(
        "appeal.answered", "appeal", _ANSWER, sites.contested
    ),
    "post api/v1/disputes/<uuid:dispute_id>/answer": Act(
        "dispute.answered", "dispute", {"outcome": "accepted", "answer": "Yes."}, sites.disputed
    ),
    "ops/budgets": Act(
        "budget.set",
        "budget",
        {"starts": "2041-01-01", "last": "2041-01-31", "amount": "900", "warn_percent": "80"},
    ),
    "ops/budgets/<uuid:budget_id>": Act(
        "budget.ladder",
        "budget",
        _RUNG | {"add": "1", "confirmed": "1"},
        sites.with_platform_budget,
    ),
    "post api/v1/platform-budgets": Act(
        "budget.set", "budget", {"starts": "2041-01-01", "ends": "2041-02-01", "amount": "900"}
    ),
    "put api/v1/platform-budgets/<uuid:budget_id>/guardrails": Act(
        "budget.ladder", "budget", {"rungs": [_RUNG]}, sites.with_platform_budget
    ),
    "put api/v1/platform-budgets/<uuid:budget_id>/variance-rule": Act(
        "budget.variance_rule_set",
        "budget",
        {"percent": 50, "amount": "5"},
        sites.with_platform_budget,
    ),
    "ops/prices": Act("prices.drafted", "price_draft", has_before=False),
    "ops/prices/drafts/<uuid:draft_id> save": Act(
        "prices.draft_changed",
        "price_draft",
        {"price-h100-standard": "7", "price-h100-spot": "2", "valid_from": "", "note": ""},
        my_draft,
    ),
    "ops/prices/drafts/<uuid:draft_id> rebase": Act(
        "prices.draft_changed", "price_draft", made=sites.outdated_draft
    ),
    "ops/prices/drafts/<uuid:draft_id> discard": Act(
        "prices.draft_discarded", "price_draft", made=sites.another_draft
    ),
    "ops/prices/drafts/<uuid:draft_id> publish": Act(
        "prices.published", "price_book", made=sites.another_draft
    ),
    "post api/v1/price-books/drafts": Act(
        "prices.drafted", "price_draft", {"prices": _PRICES}, has_before=False
    ),
    "put api/v1/price-books/drafts/<uuid:draft_id>": Act(
        "prices.draft_changed", "price_draft", {"prices": _PRICES}, my_draft
    ),
    "post api/v1/price-books/drafts/<uuid:draft_id>/rebase": Act(
        "prices.draft_changed", "price_draft", made=sites.outdated_draft
    ),
    "post api/v1/price-books/drafts/<uuid:draft_id>/discard": Act(
        "prices.draft_discarded", "price_draft", made=sites.another_draft
    ),
    "post api/v1/price-books/drafts/<uuid:draft_id>/publish": Act(
        "prices.published", "price_book", {"revision": 1}, sites.another_draft
    ),
    "ops/policy": Act("policy.drafted", "policy", _POLICY),
    "ops/policy/versions/<int:number>/scenario": Act(
        "policy.drafted", "policy", {"tier spot grace_seconds": "77s"}, made=sites.drafted
    ),
    "ops/policy/versions/<int:number> activate": Act("policy.published", "policy", made=sites.drafted),
    "ops/policy/versions/<int:number> approve": Act(
        "policy.approved", "policy", made=sites.drafted, has_before=False
    ),
    "ops/policy/versions/<int:number> withdraw": Act(
        "policy.activation_withdrawn", "policy", made=sites.activating
    ),
    "ops/policy/versions/<int:number> rollback": Act(
        "policy.rolled_back", "policy", {"reason": "x"}, made=sites.superseded
    ),
    "ops/speeds set": Act(
        "workload.set", "workload", {"workload": "training", "speed-h100": "2"}, sites.trained
    ),
    "ops/tiers set": Act("tier.set", "tier", _TIER_PAGE),
    "ops/quotas save": Act("quota.set", "quota", made=sites.quota_typed),
    "ops/tenants create": Act(
        "tenant.created",
        "tenant",
        {"slug": "new", "name": "New", "username": "mara"},
        has_before=False,
    ),
    "ops/tenants open": Act("tenant.opened", "tenant", made=sites.closed),
    "ops/tenants close": Act("tenant.closed", "tenant", made=sites.of_tenant),
    "ops/tenants admin": Act(
        "tenant.admin_invited", "tenant", {"to": "mara"}, sites.of_tenant, has_before=False
    ),
    "ops/tenants account": Act("account.created", "user", _ACCOUNT, has_before=False),
    "ops/accounts close": Act("account.closed", "user", made=sites.of_viewer),
    "ops/accounts open": Act("account.opened", "user", made=sites.closed_viewer),
    "ops/accounts factor": Act("second_factor.removed", "user", made=sites.viewers_factor),
    "ops/accounts erase": Act("account.erased", "user", made=sites.closed_viewer),
    "ops/portal begin": Act("outage.begun", "portal_mode", _OUTAGE, has_before=False),
    "ops/portal close": Act("outage.closed", "portal_mode", made=sites.announced),
    "ops/portal end": Act("outage.ended", "portal_mode", made=sites.announced),
    "ops/portal freeze": Act("freeze.begun", "portal_mode", {"reason": "x"}, has_before=False),
    "ops/portal thaw": Act("freeze.ended", "portal_mode", made=sites.frozen),
    "ops/access begin": Act(
        "access.opened",
        "operator_access",
        {"tenant": "helix", "reason": "Help", "for": "60"},
        has_before=False,
    ),
    "ops/access end": Act("access.ended", "operator_access", made=sites.accessed, has_before=False),
    "post api/v1/operator-access": Act(
        "access.opened",
        "operator_access",
        {"tenant": "helix", "reason": "Help", "length": "PT1H"},
        has_before=False,
    ),
    "post api/v1/operator-access/<uuid:access_id>/end": Act(
        "access.ended", "operator_access", made=sites.accessed, has_before=False
    ),
    "ops/announcements publish": Act(
        "announcement.published", "announcement", _ANNOUNCEMENT, has_before=False
    ),
    "ops/announcements withdraw": Act(
        "announcement.withdrawn", "announcement", made=sites.announced_to_all, has_before=False
    ),
    "post api/v1/announcements": Act(
        "announcement.published", "announcement", _ANNOUNCEMENT, has_before=False
    ),
    "post api/v1/announcements/<uuid:announcement_id>/withdraw": Act(
        "announcement.withdrawn", "announcement", made=sites.announced_to_all, has_before=False
    ),
    "ops/stops": Act(
        "stop.begun", "stop", {"what": "tier:spot", "reason": "x", "for": "2h"}, has_before=False
    ),
    "ops/decisions/<int:number>/replay": Act(
        "decision.replayed", "decision", made=sites.decided, has_before=False
    ),
    "post api/v1/decisions/<int:number>/replay": Act(
        "decision.replayed", "decision", made=sites.decided, has_before=False
    ),
    "ops/stops/<uuid:stop_id>/end": Act("stop.ended", "stop", made=sites.stopped),
    "ops/failed-messages/<int:failed_id>/retry": Act(
        "failed_message.retried", "failed_message", made=sites.failed, has_before=False
    ),
    "ops/failed-messages/<int:failed_id>/dismiss": Act(
        "failed_message.dismissed", "failed_message", made=sites.failed, has_before=False
    ),
    "post api/v1/failed-messages/<int:failed_id>/retry": Act(
        "failed_message.retried", "failed_message", made=sites.failed, has_before=False
    ),
    "post api/v1/failed-messages/<int:failed_id>/dismiss": Act(
        "failed_message.dismissed", "failed_message", made=sites.failed, has_before=False
    ),
    "post api/v1/stops": Act("stop.begun", "stop", {"scope": "site", "reason": "x"}, has_before=False),
    "ops/requirements set": Act("requirement.set", "requirement", _TRAINING | {"target": "h100"}),
    "ops/requirements end": Act("requirement.ended", "requirement", made=sites.demanded),
    "post api/v1/requirements": Act(
        "requirement.set", "requirement", {"of": "class", "target": "h100", **_TRAINING}
    ),
    "post api/v1/requirements/<uuid:requirement_id>/end": Act(
        "requirement.ended", "requirement", made=sites.demanded
    ),
    "post api/v1/stops/<uuid:stop_id>/end": Act("stop.ended", "stop", made=sites.stopped),
    "post api/v1/portal/outage": Act(
        "outage.begun", "portal_mode", {"length": "PT20M", "reason": "x"}, has_before=False
    ),
    "post api/v1/portal/outage/close": Act("outage.closed", "portal_mode", made=sites.announced),
    "post api/v1/portal/outage/end": Act("outage.ended", "portal_mode", made=sites.announced),
    "post api/v1/portal/freeze": Act("freeze.begun", "portal_mode", {"reason": "x"}, has_before=False),
    "post api/v1/policy/versions": Act("policy.drafted", "policy", {"document": {"grid": 600}}),
    "post api/v1/policy/versions/<int:number>/activate": Act(
        "policy.published", "policy", made=sites.drafted
    ),
    "post api/v1/policy/versions/<int:number>/approve": Act(
        "policy.approved", "policy", made=sites.drafted, has_before=False
    ),
    "post api/v1/policy/versions/<int:number>/withdraw": Act(
        "policy.activation_withdrawn", "policy", made=sites.activating
    ),
    "ops/policy/versions/<int:number> shadow": Act(
        "policy.shadow_begun", "policy", {"every": "1"}, sites.drafted, has_before=False
    ),
    "ops/policy/versions/<int:number> shadow-end": Act("policy.shadow_ended", "policy", made=sites.in_shadow),
    "post api/v1/policy/versions/<int:number>/shadow": Act(
        "policy.shadow_begun", "policy", made=sites.drafted, has_before=False
    ),
    "post api/v1/policy/versions/<int:number>/shadow/end": Act(
        "policy.shadow_ended", "policy", made=sites.in_shadow
    ),
    "ops/policy/versions/<int:number> trial": Act(
        "policy.trial_asked", "policy", {"days": "2", "seeds": "1"}, sites.drafted, has_before=False
    ),
    "ops/capacity/trials ask": Act(
        "policy.trial_asked", "policy", {"gpu_class": "h100", "gpus": "2", "days": "2"}, has_before=False
    ),
    "ops/capacity/trials cancel": Act("policy.trial_cancelled", "policy", made=sites.more_gpus),
    "ops/policy/trials/<uuid:trial_id> cancel": NO_TRIAL,
    "post api/v1/policy/trials": TRIAL,
    "post api/v1/policy/trials/<uuid:trial_id>/cancel": NO_TRIAL,
    "post api/v1/policy/rollback": Act("policy.rolled_back", "policy", {"reason": "x"}, sites.superseded),
    "post api/v1/portal/freeze/end": Act("freeze.ended", "portal_mode", made=sites.frozen),
    "put api/v1/fleet/nodes/<slug:name>": Act(
        "node.ladder_follows_policy", "node", {"unbooked_rules_from": "policy"}, sites.on_its_own
    ),
    "post api/v1/fleet/nodes/<slug:name>/drain": Act("node.drained", "node", {"reason": "fans"}),
    "post api/v1/fleet/nodes/<slug:name>/ready": Act("node.approved", "node", made=sites.drained),
    "post api/v1/fleet/nodes/<slug:name>/revoke": Act("node.locked_out", "node", made=sites.enrolled),
    "post api/v1/fleet/nodes/<slug:name>/rotate-key": Act("node.key_rotated", "node", made=sites.enrolled),
    "post api/v1/fleet/nodes/<slug:name>/fence": Act("node.fenced", "node", _NOTE, sites.drained),
    "put api/v1/fleet/gpus/<uuid:gpu_id>": Act(
        "node.gpu_mode_pinned", "node", {"mode_pinned": "whole"}, sites.of_gpu
    ),
    "post api/v1/fleet/gpus/<uuid:gpu_id>/return": Act("gpu.returned", "node", _NOTE, sites.ill),
    "post api/v1/maintenance": Act(
        "maintenance.planned",
        "maintenance",
        {"node": NODE, "reason": "fans", **_INSTANTS},
        has_before=False,
    ),
    "patch api/v1/maintenance/<uuid:maintenance_id>": Act(
        "maintenance.changed", "maintenance", {"reason": "other fans"}, sites.maintained
    ),
    "post api/v1/maintenance/<uuid:maintenance_id>/end": Act(
        "maintenance.ended", "maintenance", made=sites.maintained
    ),
    "post api/v1/compaction/orders": Act(
        "compaction.ordered", "compaction_order", made=sites.proposed, has_before=False
    ),
    "post api/v1/fleet/enrolments": Act(
        "node.enrolment_token_made", "node", {"node": "gpu-z9-01", "rack": "z9"}, has_before=False
    ),
    "post api/v1/price-books": Act(
        "prices.published", "price_book", {"prices": _PRICES_OF_NEW}, sites.new_tier
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
        "quota_window.removed", "quota_window", made=sites.limited, has_after=False
    ),
    "put api/v1/workloads/<slug:slug>": Act(
        "workload.set", "workload", {"speeds": {"h100": 500}}, sites.trained
    ),
    "manage.py clock_accept": Act("clock.accepted", "clock", made=sites.jumped),
    "manage.py enrol_token": Act(
        "node.enrolment_token_made", "node", {"node": "gpu-z9-01"}, has_before=False
    ),
    "manage.py epoch_raise": Act("epoch.raised", "epoch"),
    "manage.py freeze": Act("freeze.ended", "portal_mode", {"entries": ["end"]}, sites.frozen),
    "manage.py outage": Act("outage.ended", "portal_mode", {"entries": ["end"]}, sites.announced),
    "manage.py policy": Act("policy.published", "policy", {"entries": ["grid=600"]}),
    "manage.py policy_shadow": Act(
        "policy.shadow_begun", "policy", {"begin": 2}, sites.drafted, has_before=False
    ),
    "manage.py policy_trial": TRIAL,
    "manage.py rotate_key": Act("node.key_rotated", "node", {"node": NODE}, sites.enrolled),
}
_MODEL = {
    "product_name": "NVIDIA H100 80GB HBM3",
    "gpu_class": "h100",
    "memory_mb": 81_559,
    "switch_seconds": 12,
}
_NAMED = {
    "slug": "l9",
    "gpu_class": "l9",
    "label": "L9",
    "product_name": "NVIDIA L9",
    "memory_mb": "1000",
    "switch_seconds": "0",
}
_CATALOGUE = {
    "model-shipped": Act("gpu_model.set", "gpu_model", {"slug": "l4"}, has_before=False),
    "model-name": Act("gpu_model.set", "gpu_model", _NAMED, has_before=False),
    "model-set": Act("gpu_model.set", "gpu_model", {"slug": "h100-80gb", **_MODEL}),
    "model-remove": Act("gpu_model.removed", "gpu_model", {"slug": "l9"}, sites.with_l9, has_after=False),
    "class-set": Act("gpu_class.set", "gpu_class", {"slug": "h100", "label": "H100 new"}),
    "class-remove": Act("gpu_class.removed", "gpu_class", {"slug": "l8"}, sites.with_l9, has_after=False),
}
ACTS |= {f"ops/{page} {name}": act for page in ("catalogue", "setup") for name, act in _CATALOGUE.items()}
ACTS |= {
    "ops/setup approve": Act("node.approved", "node", {"node": NODE}, sites.drained),
    "ops/setup prices": Act(
        "prices.published",
        "price_book",
        {"price-h100-standard": "4.80", "price-h100-spot": "1.68", "price-h100-gold": "9"},
        sites.new_tier,
    ),
    "ops/setup quotas": Act("quota.set", "quota", {"quota-h100": "5"}, sites.of_tenant),
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
        "gpu_class.removed",
        "gpu_class",
        {},
        lambda site: sites.with_l9(site) | {"slug": "l8"},
        has_after=False,
    ),
    "put api/v1/gpu-models/<slug:slug>": Act(
        "gpu_model.set", "gpu_model", _MODEL, lambda site: {"slug": "h100-80gb"}
    ),
    "delete api/v1/gpu-models/<slug:slug>": Act(
        "gpu_model.removed",
        "gpu_model",
        {},
        lambda site: sites.with_l9(site) | {"slug": "l9"},
        has_after=False,
    ),
}
ACTS |= WEBHOOK_ACTS | ROLE_ACTS
# The same as the act named, once for each model that waits for it: without any, nothing is done.
AS_ANOTHER = {"ops/catalogue models-known", "ops/setup models-known"}
# They answer a question by a POST, or mark an own inbox as read, and write nothing else.
ASKING = WEBHOOK_MESSAGES | {
    "ops/inbox all-read",
    "post api/v1/operator-notifications/read",
    "put api/v1/operator-notifications/<uuid:notification_id>",
    "post api/v1/fleet/bookings/acts/preview",
    "post api/v1/maintenance/preview",
    "post api/v1/maintenance/<uuid:maintenance_id>/preview",
    "post api/v1/stops/preview",
    "post api/v1/platform-budgets/<uuid:budget_id>/guardrails/preview",
}
PLACES = {"failed_id": "1", "name": NODE, "node": NODE, "index": "0", "slug": "standard", "number": "1"}
