"""The page that drafts a scenario: what a version of the policy also sets of tiers, quotas and prices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from allocation.models import PolicyVersion
from allocation.services.policy.policies import policy_draft, policy_version
from allocation.services.policy.scenarios import (
    Key,
    Value,
    Values,
    field_label,
    present_values,
    scenario_document,
    scenario_keys,
    scenario_read,
    value_text,
)
from allocation.words.refusals import refusal_text
from tenants.models import GpuClass, Tenant, User
from tenants.platform.errors import Refused, invalid
from tenants.services import units_read
from tenants.web.tiers import TERMS

TITLES = {"tier": "Tiers", "quota": "Quotas", "price": "Prices", "peak_hours": "Peak hours"}


@dataclass(frozen=True, slots=True)
class Input:
    """A value in the form: as it is typed, and as it is now."""

    key: Key
    text: str
    now: str
    is_choice: bool

    @property
    def name(self) -> str:
        """Returns the name of its field."""
        return " ".join(self.key)

    @property
    def label(self) -> str:
        """Returns its label for who does not see the table."""
        return f"{self.key[1]} {field_label(self.key[2])}".strip()

    @property
    def is_changed(self) -> bool:
        """Returns whether it differs from the present value."""
        return self.text != self.now


def scenario_page(request: HttpRequest, operator: User, number: int, now: datetime) -> HttpResponse:
    """Shows the values of tiers, prices, and of one organisation's quotas; POST drafts a version like this
    one that also sets those that were changed."""
    version = policy_version(number)
    asked = request.POST if request.method == "POST" else request.GET
    tenants = list(Tenant.objects.order_by("slug").values_list("slug", "name"))
    classes = list(GpuClass.objects.order_by("slug").values_list("slug", "label"))
    tenant, gpu_class = _chosen(asked.get("tenant"), tenants), _chosen(asked.get("gpu_class"), classes)
    present = present_values(scenario_keys(tenant, gpu_class))
    kept = scenario_read(version.scenario) if version.state != PolicyVersion.State.LIVE else {}
    typed = {key: value_text(key[2], {**present, **kept}[key]) for key in present}
    refusal = None
    if request.method == "POST":
        typed = {key: request.POST.get(" ".join(key), typed[key]).strip() for key in present}
        try:
            made = _drafted(version, operator, kept | _changed(typed, present, kept), now)
        except Refused as found:
            refusal = found
        else:
            messages.success(request, f"Policy version {made.number} drafted. It sets nothing yet.")
            return redirect("ops-policy-version", number=made.number)
    inputs = [
        Input(key, typed[key], value_text(key[2], present[key]), isinstance(present[key], bool))
        for key in present
    ]
    context = {
        "version": version,
        "groups": [(title, *_table(kind, inputs)) for kind, title in TITLES.items()],
        "tenants": tenants,
        "classes": classes,
        "shown_tenant": tenant,
        "gpu_class": gpu_class,
        "kept": kept,
        "refusal": refusal,
    }
    return render(request, "policy_lab/scenario.html", context, status=422 if refusal else 200)


def _chosen(name: str | None, known: Iterable[tuple[str, str]]) -> str:
    slugs = [slug for slug, _ in known]
    return name if name in slugs else next(iter(slugs), "")


def _table(kind: str, inputs: Iterable[Input]) -> tuple[list[str], list[tuple[str, list[Input]]]]:
    """The columns and rows of a kind; tiers have a column each, because they have many values."""
    rows: dict[str, list[Input]] = {}
    columns: dict[str, None] = {}
    at, other = (2, 1) if kind == "tier" else (1, 2)
    for each in inputs:
        if each.key[0] == kind:
            rows.setdefault(each.key[at], []).append(each)
            columns[each.key[other]] = None
    words = (lambda name: name) if kind == "tier" else field_label
    named = _tier_term if kind == "tier" else (lambda name: name or "The site")
    return [words(each) for each in columns], [(named(name), row) for name, row in rows.items()]


def _tier_term(name: str) -> str:
    words = TERMS.get(name, field_label(name))
    return f"{words}, in seconds" if name.endswith("_seconds") else words


def _changed(typed: Mapping[Key, str], present: Values, kept: Values) -> Values:
    """The values that were changed from what the form showed, in the types of their fields."""
    shown = {**present, **kept}
    return {
        key: _read(text, present[key], key)
        for key, text in typed.items()
        if text != value_text(key[2], shown[key])
    }


def _drafted(version: PolicyVersion, operator: User, values: Values, now: datetime) -> PolicyVersion:
    if not values:
        raise invalid("no_change", refusal_text("policy_unchanged"), "scenario")
    return policy_draft(
        document=version.document,
        now=now,
        created_by_id=operator.pk,
        scenario=scenario_document(values),
    )


def _read(text: str, present: Value, key: Key) -> Value:
    """A typed value; empty is none, except for words. Raises Refused `bad_scenario` or `bad_number`."""
    if isinstance(present, bool):
        return text == "yes"
    if key[0] in ("price", "peak_hours") or isinstance(present, str):
        return text or ("" if key[0] == "peak_hours" else None)
    if not text:
        return None
    if key[2].endswith("_units"):
        return units_read(text, param=" ".join(key))
    try:
        return int(text)
    except ValueError:
        name = f"{key[1]} {field_label(key[2])}"
        raise invalid("bad_scenario", refusal_text("scenario_value", name=name), "scenario") from None
