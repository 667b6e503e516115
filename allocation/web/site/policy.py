"""The policy: every value with its meaning, and a form that drafts the next version."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import PolicyVersion
from allocation.queries.decisions.policy_versions import VersionFacts, versions_read
from allocation.rules.approvals import PLACE_POLICY_MAX
from allocation.rules.nodes.no_shows import PRESENCE_POLICY_MAX
from allocation.rules.nodes.node_policy import NODE_POLICY_MAX
from allocation.services.policy.differences import change_lines, difference_lines, policy_text
from allocation.services.policy.names import COUNTS, GROUPS, LABELS
from allocation.services.policy.policies import (
    LEAST,
    LISTS,
    MOST,
    TIER_SECONDS,
    PolicyValue,
    policy_changes,
    policy_check,
    policy_draft,
    policy_names,
    policy_read,
    policy_values,
    tier_seconds_read,
)
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.services import seconds_read, whole_read
from tenants.web.frame import operator_page
from tenants.web.parts import counted

VERSIONS_SHOWN = 20
LIMITS = MOST | NODE_POLICY_MAX | PRESENCE_POLICY_MAX | PLACE_POLICY_MAX


@dataclass(frozen=True, slots=True)
class PolicyField:
    """A policy value: typed, live and default."""

    name: str
    label: str
    hint: str
    value: str
    live: str
    default: str
    error: str

    @property
    def is_list(self) -> bool:
        """Returns whether it has several values."""
        return self.name in LISTS or self.name in TIER_SECONDS

    @property
    def is_own(self) -> bool:
        """Returns whether the live value differs from the default."""
        return self.live != self.default


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_policy(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the live version in a form; POST shows the differences, then makes a draft."""
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    if request.method != "POST":
        return _page(request, live, None)
    now = timezone.now()
    try:
        document = _document(request.POST)
        changes = _changes(live, document)
        if not changes["after"]:
            raise invalid("no_change", refusal_text("policy_unchanged"), "document")
        if CONFIRMED_FIELD not in request.POST:
            moved = policy_check(document, now)
            return confirm_page(request, _question(live.number, changes, moved))
        made = policy_draft(document=document, now=now, created_by_id=operator.id)
    except Refused as refusal:
        return _page(request, live, refusal)
    messages.success(request, f"Policy version {made.number} drafted. It decides nothing yet.")
    return redirect("ops-policy-version", number=made.number)


def _page(request: HttpRequest, live: PolicyVersion, refusal: Refused | None) -> HttpResponse:
    typed = request.POST if refusal else None
    groups = [
        (title, [_field(*each, live.document, typed, refusal) for each in fields]) for title, fields in GROUPS
    ]
    shown = [field for _, fields in groups for field in fields]
    versions = versions_read()
    context = {
        "live": live,
        "since": next(
            (each.last.ended_at for each in versions if each.last and each.number == live.number), None
        ),
        "groups": groups,
        "own": sum(field.is_own for field in shown),
        "refusal": None if any(field.error for field in shown) else refusal,
        "versions": [
            (each, difference_lines(_compared(each, live), each.version.document))
            for each in versions[:VERSIONS_SHOWN]
        ],
    }
    return render(request, "allocation/ops_policy.html", context, status=422 if refusal else 200)


def _compared(facts: VersionFacts, live: PolicyVersion) -> dict[str, Any]:
    """Returns the document that a version took the place of, or would take."""
    former = live if facts.last is None else facts.last.former
    return {} if former is None else former.document


def _field(
    name: str,
    label: str,
    hint: str,
    document: Mapping[str, Any],
    typed: QueryDict | None,
    refusal: Refused | None,
) -> PolicyField:
    live = policy_text(name, policy_values(dict(document))[name])
    return PolicyField(
        name=name,
        label=label,
        hint=hint,
        value=live if typed is None else typed.get(name, ""),
        live=live,
        default=policy_text(name, policy_values({})[name]),
        error=refusal.sentence if refusal and refusal.param == name else "",
    )


def _document(form: QueryDict) -> dict[str, PolicyValue]:
    """Returns the typed values that differ from the default. Raises Refused with the field."""
    defaults = policy_values({})
    found = {name: _read(name, form.get(name, "")) for name in LABELS}
    return {name: value for name, value in found.items() if value != defaults[name]}


def _changes(
    live: PolicyVersion, document: dict[str, PolicyValue]
) -> Mapping[str, Mapping[str, PolicyValue]]:
    """Returns the changed values. Raises Refused for inconsistent values."""
    try:
        return policy_changes(live.document, document)
    except ValueError as error:
        raise invalid("bad_policy", str(error), "document") from error


def _read(name: str, text: str) -> PolicyValue:
    if name in LISTS:
        return _names_read(name, text)
    if name in TIER_SECONDS:
        return _tier_seconds(name, text)
    value = (whole_read if name in COUNTS else seconds_read)(text, param=name)
    least = 0 if name.startswith("unbooked_") else LEAST.get(name, 1)
    if not least <= value <= LIMITS[name]:
        low, high = policy_text(name, least), policy_text(name, LIMITS[name])
        raise invalid("bad_policy", refusal_text("policy_bounds", low=low, high=high), name)
    return value


def _names_read(name: str, text: str) -> tuple[str, ...]:
    try:
        names = policy_names(text)
        policy_read({name: names}, 0)
    except ValueError as error:
        raise invalid("bad_policy", str(error), name) from error
    return tuple(names)


def _tier_seconds(name: str, text: str) -> dict[str, int]:
    found = tier_seconds_read(text, param=name)
    try:
        policy_read({name: found}, 0)
    except ValueError as error:
        raise invalid("bad_policy", str(error), name) from error
    return found


def _question(number: int, changes: Mapping[str, Mapping[str, PolicyValue]], moved: int) -> Confirmation:
    values = counted(len(changes["after"]), "value")
    starts = counted(moved, "start")
    return Confirmation(
        title="Draft the next policy version?",
        lost=(
            *change_lines(changes),
            f"With the current queue, {starts} would move."
            if moved
            else "With the current queue, no start would move.",
            "The draft decides nothing. On its page you try it, have it approved and put it into force.",
        ),
        button=f"Draft a version, change {values}",
        back="/ops/policy",
        keep=f"Keep version {number}",
    )


urlpatterns = [path("ops/policy", ops_policy, name="ops-policy")]
