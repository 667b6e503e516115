"""Pages of one version of the policy, and of a trial of it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from allocation.api.fleet.policy import version_facts
from allocation.features.policy_lab import fleet_page
from allocation.features.policy_lab.charts import changes_of, days_of
from allocation.features.policy_lab.demand import DemandTerms
from allocation.features.policy_lab.guard_form import ActivateForm, figure_choices
from allocation.features.policy_lab.models import PolicyShadow, PolicyTrial
from allocation.features.policy_lab.results import EFFECTS, SIDES, TOTALS, csv_lines, money_of, notes_of
from allocation.features.policy_lab.scenario_form import scenario_page
from allocation.features.policy_lab.shadows import (
    ShadowTerms,
    differences_of,
    shadow_begin,
    shadow_end,
    shadow_last,
    sums_by_tenant,
)
from allocation.features.policy_lab.trials import TrialTerms, trial_ask, trial_cancel, trial_one
from allocation.features.policy_lab.versions import (
    RollbackTerms,
    version_activate,
    version_approve,
    version_rollback,
    version_withdraw,
)
from allocation.models import PolicyActivation, PolicyVersion
from allocation.queries.decisions.policy_versions import VersionFacts
from allocation.services.policy.differences import policy_text, version_lines
from allocation.services.policy.names import LABELS
from allocation.services.policy.parts import part_names, whole_site_names
from allocation.services.policy.policies import policy_differences, policy_values
from allocation.web.parts.times import waited
from allocation.web.site.policy_questions import ORDER_WORDS, PAUSE_WORDS
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.models import GpuClass, Tenant, User
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import number_text_read
from tenants.platform.terms import term, terms
from tenants.queries import is_only_operator
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, operator_form_page
from tenants.web.frame import operator_page

ACTS_SHOWN = 20
DIFFERENCES_SHOWN = 50
_BACK = (PolicyActivation.Kind.ROLLBACK, PolicyActivation.Kind.RETURN)
GROUPS = (("tiers", "By tier"), ("tenants", "By organisation"), ("projects", "By project"))


@terms
class PastTerms:
    """The past on which a version is tried."""

    days: int = term("Days of the past", default=7)
    seeds: int = term("Seeds", "Draws of runs whose length nobody knows.", default=3)
    load: int = term("Bookings, % of the past's", "More are drawn from those of the past.", default=100)
    sizes: int = term("GPUs of each booking, %", default=100)
    bursts: int | None = term(
        "Bookings in bursts, % (optional)", "Within ten minutes of a day.", default=None
    )


def _shown(actor: PlatformActor, now: datetime, number: int, against: str) -> dict[str, Any]:
    facts = version_facts(number)
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    other = _compared(facts, live, against)
    shadow = shadow_last(number)
    own = PolicyActivation.objects.filter(version=number)
    # That it was taken back belongs to its history, too.
    back = Q(kind__in=_BACK, former__in=own.filter(in_force__isnull=False).values("in_force"))
    acts = PolicyActivation.objects.select_related("asked_by", "former").filter(Q(version=number) | back)
    is_mine = facts.version.created_by_id == actor.user_id
    return {
        "facts": facts,
        "live": live,
        "other": other,
        "others": PolicyVersion.objects.exclude(number=number).order_by("-number"),
        "lines": version_lines(other, facts.version) if other else [],
        "values": _values(facts.version.document),
        "acts": [(act, _for_words(act)) for act in acts.order_by("-id")[:ACTS_SHOWN]],
        "part": part_names(facts.part) if facts.part else "",
        "parts": [(row["version"], part_names(row)) for row in facts.version.parts],
        "trials": PolicyTrial.objects.filter(candidate=number, fleet={}).defer("report")[:ACTS_SHOWN],
        "shadow": shadow,
        "is_in_shadow": shadow is not None and shadow.ended_at is None,
        "sums": sums_by_tenant(shadow) if shadow else [],
        "differences": differences_of(shadow)[:DIFFERENCES_SHOWN] if shadow else [],
        "is_live": number == live.number,
        "whole_site": [] if number == live.number else _whole_site(live, facts.version),
        "is_mine": is_mine,
        "is_alone": is_only_operator(actor.user_id, Area.RULES, now),
        "may_approve": not is_mine and facts.approval is None and facts.last is None,
        "may_go_back": facts.version.state == PolicyVersion.State.RETIRED,
    }


def _values(document: Mapping[str, Any]) -> list[tuple[str, str, bool, bool]]:
    """The name and the text of each value, whether the version sets it, and whether it is a list in words."""
    words = {**ORDER_WORDS, **PAUSE_WORDS}
    rows = []
    for name, value in policy_values(dict(document)).items():
        is_list = isinstance(value, tuple) and len(value) > 1
        text = policy_text(name, value)
        if isinstance(value, tuple) and value:
            text = "; ".join(words.get(each, each) for each in value)
        rows.append((LABELS.get(name, name), text, name in document, is_list))
    return sorted(rows, key=lambda row: row[3])


def _whole_site(live: PolicyVersion, version: PolicyVersion) -> list[tuple[str, str]]:
    """Why a version can't be in force for some GPU classes, or organisations, only: what it changes that has
    one value for all."""
    changed = policy_differences(live, version)["after"]
    rows = [
        (where, [*whole_site_names(changed, tenants=is_tenants), *sorted(version.scenario)])
        for where, is_tenants in (("GPU classes", False), ("organisations", True))
    ]
    return [(where, ", ".join(names)) for where, names in rows if names]


def _for_words(act: PolicyActivation) -> str:
    """The part of the site that an activation is for, if it is not for all."""
    return part_names({"classes": act.classes, "tenants": act.tenants})


def _compared(facts: VersionFacts, live: PolicyVersion, against: str) -> PolicyVersion | None:
    """Returns the version to compare with: the one that is chosen, the live one, or its former."""
    chosen = number_text_read(against)
    found = PolicyVersion.objects.exclude(number=facts.number).filter(number=chosen or 0).first()
    if found is not None:
        return found
    if facts.number != live.number:
        return live
    return facts.last.former if facts.last else None


def _activate(*, actor: PlatformActor, number: int, terms: ActivateForm, now: datetime) -> VersionFacts:
    return version_activate(actor=actor, number=number, terms=terms.as_sent(), now=now)


def _classes(_: PlatformActor) -> list[tuple[object, object]]:
    return list(GpuClass.objects.order_by("slug").values_list("slug", "label"))


def _tenants(_: PlatformActor) -> list[tuple[object, object]]:
    return list(Tenant.objects.filter(is_open=True).order_by("slug").values_list("slug", "name"))


def _asked(facts: VersionFacts) -> str:
    """The sentence after an activation."""
    if facts.part is not None and not facts.waits_for:
        where = part_names(facts.part)
        return f"Version {facts.number} is in force for {where}. It applies from the next decision."
    words = {
        "": "is in force. It applies from the next decision.",
        "second_operator": "waits for another operator's approval.",
        "waiting_time": "waits for a day, because there is no second operator.",
        "start": "goes into force at its time.",
    }
    return f"Version {facts.number} {words[facts.waits_for]}"


def _shadow_begin(*, actor: PlatformActor, number: int, terms: ShadowTerms, now: datetime) -> PolicyShadow:
    return shadow_begin(number=number, terms=terms, operator_id=actor.user_id, now=now)


def _shadow_end(*, actor: PlatformActor, number: int, now: datetime) -> PolicyShadow:
    return shadow_end(number=number, operator_id=actor.user_id, now=now)


def _trial_ask(*, actor: PlatformActor, number: int, terms: PastTerms, now: datetime) -> PolicyTrial:
    demand = DemandTerms(load=terms.load, sizes=terms.sizes, bursts=terms.bursts or 0)
    asked = TrialTerms(candidate=number, days=terms.days, seeds=terms.seeds, demand=demand)
    return trial_ask(terms=asked, operator_id=actor.user_id, now=now)


def _trial_shown(actor: PlatformActor, now: datetime, trial_id: UUID) -> dict[str, Any]:
    trial = trial_one(trial_id)
    shown: dict[str, Any] = {"trial": trial, "is_open": trial.state in PolicyTrial.OPEN}
    shown["names"] = f"Version {trial.against_id}", f"Version {trial.candidate_id}"
    if trial.fleet:
        shown["fleet"] = fleet_page.words_of(trial)
        shown["names"] = "The GPUs of now", shown["fleet"]
    if trial.demand:
        shown["demand"] = DemandTerms(**trial.demand)
    report = trial.report
    if report is None:
        return shown
    sides = report["totals"]["active"], report["totals"]["candidate"]
    groups = [(title, [_row(row) for row in report[key]]) for key, title in GROUPS]
    return shown | {
        "report": report,
        "begins": datetime.fromtimestamp(report["begins"], UTC),
        "totals": [(label, *(_figure(side[name], scale) for side in sides)) for label, name, scale in TOTALS],
        "notes": list(notes_of(report)),
        "groups": groups,
        "days": days_of(report["days"]),
        "changes": changes_of([*report["tiers"], *report["tenants"]]),
        "examples": [
            ("Waits longer", [_example(row) for row in report["longer"]]),
            ("Waits less", [_example(row) for row in report["shorter"]]),
        ],
    }


def _figure(value: int | None, scale: int) -> str:
    if value is None:
        return "not measured"
    return f"{value:,}" if scale == 1 else f"{value / scale:,.1f}"


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table, with its effect in words and its money with cents."""
    money = [money_of(row[side]["money"]) for side in SIDES if "money" in row[side]]
    waits = {name: " to ".join(waited(row[side][name]) for side in SIDES) for name in ("p50", "p95")}
    return row | waits | {"words": EFFECTS[row["effect"]], "money": money}


def _example(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"before": waited(row["active"]), "after": waited(row["candidate"])}


def _trial_cancel(*, actor: PlatformActor, trial_id: UUID, now: datetime) -> PolicyTrial:
    return trial_cancel(trial_id=trial_id, operator_id=actor.user_id, now=now)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_policy_scenario(request: HttpRequest, operator: User, number: int) -> HttpResponse:
    """Shows what a version may also set of tiers, quotas and prices; POST drafts one that does."""
    return scenario_page(request, operator, number, timezone.now())


@require_safe
@operator_page(Area.RULES)
def trial_csv(request: HttpRequest, operator: User, trial_id: UUID) -> HttpResponse:
    """Returns the rows of a trial as CSV."""
    return _file("".join(csv_lines(_report(trial_id))), "text/csv; charset=utf-8", "csv")


@require_safe
@operator_page(Area.RULES)
def trial_json(request: HttpRequest, operator: User, trial_id: UUID) -> HttpResponse:
    """Returns the whole report as JSON."""
    text = json.dumps(_report(trial_id), indent=1, sort_keys=True)
    return _file(text + "\n", "application/json", "json")


def _report(trial_id: UUID) -> dict[str, Any]:
    report: dict[str, Any] | None = trial_one(trial_id).report
    if report is None:
        raise Refused("not_done", refusal_text("trial_not_done"), "conflict")
    return report


def _file(text: str, kind: str, ending: str) -> HttpResponse:
    response = HttpResponse(text, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="policy-trial.{ending}"'
    return response


urlpatterns = [
    operator_form_page(
        "policy/versions/<int:number>",
        "ops-policy-version",
        "policy_lab/version.html",
        _shown,
        Act(
            "activate",
            _activate,
            _asked,
            terms=ActivateForm,
            choices={"classes": _classes, "tenants": _tenants, "watch": figure_choices},
        ),
        Act("approve", version_approve, "Version {row.number} approved."),
        Act("withdraw", version_withdraw, "Version {row.number} does not wait any more."),
        Act(
            "rollback",
            version_rollback,
            "Version {row.number} is in force again. It applies from the next decision.",
            terms=RollbackTerms,
        ),
        Act(
            "shadow",
            _shadow_begin,
            "Version {row.version_id} is in shadow. It acts on nothing.",
            terms=ShadowTerms,
        ),
        Act("shadow-end", _shadow_end, "Version {row.version_id} is out of shadow."),
        Act(
            "trial",
            _trial_ask,
            "The trial is asked for. It begins within seconds.",
            terms=PastTerms,
        ),
        area=Area.RULES,
        queries=("against",),
    ),
    path("ops/policy/versions/<int:number>/scenario", ops_policy_scenario, name="ops-policy-scenario"),
    operator_form_page(
        "policy/trials/<uuid:trial_id>",
        "ops-policy-trial",
        "policy_lab/trial.html",
        _trial_shown,
        Act("cancel", _trial_cancel, "The trial is cancelled."),
        area=Area.RULES,
    ),
    *fleet_page.urlpatterns,
    path("ops/policy/trials/<uuid:trial_id>.csv", trial_csv, name="ops-policy-trial-csv"),
    path("ops/policy/trials/<uuid:trial_id>.json", trial_json, name="ops-policy-trial-json"),
]
