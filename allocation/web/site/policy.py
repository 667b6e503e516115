"""The policy: questions with their effects, every value for experts, and a form that drafts a version."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from allocation.services.policy.names import COUNTS, GROUPS, LABELS, NO_NAMES
from allocation.services.policy.policies import (
    BY_NAME,
    LEAST,
    LISTS,
    MOST,
    PolicyValue,
    by_name_read,
    policy_changes,
    policy_check,
    policy_draft,
    policy_names,
    policy_read,
    policy_values,
)
from allocation.web.site.policy_questions import (
    ASKED,
    ORDER_WORDS,
    PAUSE_WORDS,
    PRESETS,
    QUESTIONS,
    Question,
    preset_named,
)
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.rules.operator_roles import Area
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
    question: Question | None = None
    is_changed: bool = False
    """Whether it differs from the live value, as typed or by a preset."""

    @property
    def is_list(self) -> bool:
        """Returns whether it has several values."""
        return self.name in LISTS or self.name in BY_NAME

    @property
    def is_own(self) -> bool:
        """Returns whether the live value differs from the default."""
        return self.live != self.default

    @property
    def ranks(self) -> list[tuple[str, str]]:
        """The keys of the order with their words, as they stand."""
        return [(key, ORDER_WORDS.get(key, key)) for key in self._names]

    @property
    def ticks(self) -> list[tuple[str, str, bool]]:
        """The rules that may pause, with their words, and whether each is ticked."""
        return [(key, words, key in self._names) for key, words in PAUSE_WORDS.items()]

    @property
    def _names(self) -> list[str]:
        return [
            each for each in (part.strip() for part in self.value.split(",")) if each and each != NO_NAMES
        ]


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_policy(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the live version in a form; POST shows the differences, then makes a draft.

    `?preset=` fills in the values for a kind of site. A button of the order moves one of its keys.
    """
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    if request.method != "POST":
        return _page(request, live, None, _of_preset(request.GET.get("preset", "")))
    if move := request.POST.get("move", ""):
        return _page(request, live, None, {**_typed(request.POST), "order": _moved(request.POST, move)})
    now = timezone.now()
    try:
        document = _document(_typed(request.POST))
        changes = _changes(live, document)
        if not changes["after"]:
            raise invalid("no_change", refusal_text("policy_unchanged"), "document")
        if CONFIRMED_FIELD not in request.POST:
            moved = policy_check(document, now)
            return confirm_page(request, _question(live.number, changes, moved))
        made = policy_draft(document=document, now=now, created_by_id=operator.id)
    except Refused as refusal:
        return _page(request, live, refusal, _typed(request.POST))
    messages.success(request, f"Policy version {made.number} drafted. It decides nothing yet.")
    return redirect("ops-policy-version", number=made.number)


def _typed(form: QueryDict) -> dict[str, str]:
    """The values as texts. Lists come one by one, and a list with nothing ticked has no names."""
    texts = {name: form.get(name, "") for name in LABELS}
    for name in LISTS:
        texts[name] = ", ".join(form.getlist(name)) or NO_NAMES
    return texts


def _of_preset(name: str) -> dict[str, str] | None:
    """The values of a preset as texts; None without one."""
    preset = preset_named(name)
    if preset is None:
        return None
    values = policy_values(dict(preset.document))
    return {name: policy_text(name, values[name]) for name in LABELS}


def _moved(form: QueryDict, move: str) -> str:
    """The order after one of its keys was moved by a place: `age up`, `age down`."""
    keys = form.getlist("order")
    key, _, way = move.partition(" ")
    if key in keys:
        at = keys.index(key)
        to = min(len(keys) - 1, max(0, at + (1 if way == "down" else -1)))
        keys.insert(to, keys.pop(at))
    return ", ".join(keys)


def _page(
    request: HttpRequest, live: PolicyVersion, refusal: Refused | None, typed: Mapping[str, str] | None
) -> HttpResponse:
    known = {
        name: _field(name, label, hint, live.document, typed, refusal)
        for _, fields in GROUPS
        for name, label, hint in fields
    }
    questions = [
        (title, [replace(known[each.name], question=each) for each in group]) for title, group in QUESTIONS
    ]
    experts = [
        (title, [known[name] for name, _, _ in fields if name not in ASKED]) for title, fields in GROUPS
    ]
    shown = list(known.values())
    versions = versions_read()
    context = {
        "live": live,
        "since": next(
            (each.last.ended_at for each in versions if each.last and each.number == live.number), None
        ),
        "questions": questions,
        "experts": [each for each in experts if each[1]],
        "is_expert_open": any(field.error or field.is_changed for _, group in experts for field in group),
        "own": [field for field in shown if field.is_own],
        "changed": [field for field in shown if field.is_changed],
        "presets": PRESETS,
        "preset": preset_named(request.GET.get("preset", "")),
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
    typed: Mapping[str, str] | None,
    refusal: Refused | None,
) -> PolicyField:
    live = policy_text(name, policy_values(dict(document))[name])
    value = live if typed is None else typed.get(name, "")
    return PolicyField(
        name=name,
        label=label,
        hint=hint,
        value=value,
        live=live,
        default=policy_text(name, policy_values({})[name]),
        error=refusal.sentence if refusal and refusal.param == name else "",
        is_changed=value != live,
    )


def _document(texts: Mapping[str, str]) -> dict[str, PolicyValue]:
    """Returns the typed values that differ from the default. Raises Refused with the field."""
    defaults = policy_values({})
    found = {name: _read(name, texts[name]) for name in LABELS}
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
    if name in BY_NAME:
        return _by_name(name, text)
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


def _by_name(name: str, text: str) -> dict[str, int]:
    found = by_name_read(name, text)
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
