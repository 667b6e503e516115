"""The page that drafts a scenario: what a version of the policy also sets of tiers, quotas and prices."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from allocation.models import PolicyVersion
from allocation.services.policy.policies import policy_draft, policy_version
from allocation.services.policy.scenarios import (
    PEAK,
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
from billing.price_books import currency_latest
from tenants.models import GpuClass, Project, Tenant, Tier, User
from tenants.platform.errors import Refused, invalid
from tenants.services import seconds_read, seconds_text, units_read
from tenants.web.tiers import TERMS

PEAK_WORDS = {"hours": "Hours with peak prices", "zone": "Their time zone"}
FIRST = (
    "priority",
    "pausable",
    "grace_seconds",
    "protected_seconds",
    "max_duration_seconds",
    "advance_seconds",
)
"""The terms of tiers that are shown at once; the others fold away."""
QUOTA_COLUMNS = {
    "guaranteed_units": "Guaranteed GPUs",
    "borrow_limit_units": "May borrow",
    "lend_limit_units": "Lends at most",
    "weight": "Weight",
    "cap_gpu_hours": "GPU-hours at most",
    "cap_days": "per days",
    "cap_carries": "Carry over the rest",
}
# A price as the database has it, "3.3600": what follows the cents are zeros.
_CENTS = re.compile(r"^(\d+\.\d\d)0+$")
YES_NO = (("yes", "yes"), ("no", "no"))


@dataclass(frozen=True, slots=True)
class Input:
    """A value in the form: as it is typed, and as it is now; `column` is what stands above it."""

    key: Key
    text: str
    now: str
    choices: tuple[tuple[str, str], ...] = ()
    column: str = ""
    row: str = ""

    @property
    def name(self) -> str:
        """Returns the name of its field."""
        return " ".join(self.key)

    @property
    def label(self) -> str:
        """Returns its label for who does not see the table."""
        return f"{self.row}, {self.column}".strip(", ")

    @property
    def is_changed(self) -> bool:
        """Returns whether it differs from the present value."""
        return self.text != self.now

    @property
    def now_words(self) -> str:
        """Returns the present value in words."""
        return dict(self.choices).get(self.now, self.now) or "none"


@dataclass(frozen=True, slots=True)
class Group:
    """A table of inputs: rows by their names, in the same columns. `more` are rows that fold away."""

    name: str
    title: str
    about: str
    head: str
    rows: dict[str, list[Input]]
    more: dict[str, list[Input]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Returns the headings of the columns."""
        first = next(iter(self.rows.values()), [])
        return [each.column for each in first]

    @property
    def is_more_changed(self) -> bool:
        """Returns whether a row that folds away has a changed value."""
        return any(each.is_changed for row in self.more.values() for each in row)


def scenario_page(request: HttpRequest, operator: User, number: int, now: datetime) -> HttpResponse:
    """Shows the values of tiers, prices, and of one organisation's quotas; POST drafts a version like this
    one that also sets those that were changed."""
    version = policy_version(number)
    asked = request.POST if request.method == "POST" else request.GET
    tenants = list(Tenant.objects.order_by("slug").values_list("slug", "name"))
    classes = list(GpuClass.objects.order_by("order", "slug").values_list("slug", "label"))
    tenant, gpu_class = _chosen(asked.get("tenant"), tenants), _chosen(asked.get("gpu_class"), classes)
    present = present_values(scenario_keys(tenant, gpu_class))
    kept = scenario_read(version.scenario) if version.state != PolicyVersion.State.LIVE else {}
    typed = {key: _text(key, {**present, **kept}[key]) for key in present}
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
        Input(key, typed[key], _text(key, present[key]), _choices(key, present[key])) for key in present
    ]
    context = {
        "version": version,
        "groups": _groups(inputs, dict(tenants).get(tenant, ""), dict(classes)),
        "tenants": tenants,
        "classes": classes,
        "shown_tenant": tenant,
        "gpu_class": gpu_class,
        "changed": sum(each.is_changed for each in inputs),
        "refusal": refusal,
    }
    return render(request, "policy_lab/scenario.html", context, status=422 if refusal else 200)


def _chosen(name: str | None, known: Iterable[tuple[str, str]]) -> str:
    slugs = [slug for slug, _ in known]
    return name if name in slugs else next(iter(slugs), "")


def _groups(inputs: list[Input], tenant: str, classes: Mapping[str, str]) -> list[Group]:
    """The tables that have rows, in the order of the page."""
    tiers = dict(Tier.objects.order_by("-priority", "slug").values_list("slug", "name"))
    projects = dict(Project.objects.filter(tenant__name=tenant).values_list("slug", "name"))
    groups = [
        _tiers(_of_kind(inputs, "tier"), tiers),
        Group(
            "quota",
            "Quotas",
            "Empty: no limit.",
            "Who",
            _rows(
                _of_kind(inputs, "quota"),
                lambda key: projects.get(key[1].split("/")[1], key[1]) if key[1].count("/") == 2 else tenant,
                lambda key: QUOTA_COLUMNS[key[2]],
            ),
        ),
        _prices(_of_kind(inputs, "price"), tiers, classes),
        Group(
            "peak_hours",
            "Peak hours",
            "Peak prices apply in these hours. Empty: there are none.",
            "Where",
            _rows(_of_kind(inputs, "peak_hours"), lambda _: "The site", lambda key: PEAK_WORDS[key[2]]),
        ),
    ]
    return [each for each in groups if each.rows]


def _tiers(inputs: list[Input], names: Mapping[str, str]) -> Group:
    """Tiers have a column each, because they have many terms."""
    rows = _rows(inputs, lambda key: _tier_term(key[2]), lambda key: names[key[1]])
    first = {_tier_term(name) for name in FIRST}
    return Group(
        "tier",
        "Tiers",
        "Lengths as 90s, 10m, 2h or 14d. Empty: no limit, or as the policy says.",
        "Term",
        {name: row for name, row in rows.items() if name in first},
        {name: row for name, row in rows.items() if name not in first},
    )


def _prices(inputs: list[Input], tiers: Mapping[str, str], classes: Mapping[str, str]) -> Group:
    """A row of each class, with the prices of all tiers and then those in peak hours."""

    def column(key: Key) -> str:
        tier = tiers.get(key[1].partition("/")[2], "")
        return f"{tier}, peak" if key[2] == PEAK else tier

    of_tiers, of_classes = ({slug: at for at, slug in enumerate(names)} for names in (tiers, classes))

    def place(each: Input) -> tuple[int, str, bool, int]:
        gpu_class, _, tier = each.key[1].partition("/")
        at = of_classes.get(gpu_class, len(classes))
        return at, gpu_class, each.key[2] == PEAK, of_tiers.get(tier, len(tiers))

    ordered = sorted(inputs, key=place)
    return Group(
        "price",
        "Prices",
        f"{currency_latest()} for a GPU-hour. A peak price that is empty: the same as at other hours.",
        "GPU class",
        _rows(ordered, lambda key: classes.get(key[1].partition("/")[0], key[1]), column),
    )


def _of_kind(inputs: Iterable[Input], kind: str) -> list[Input]:
    return [each for each in inputs if each.key[0] == kind]


def _rows(
    inputs: Iterable[Input], row: Callable[[Key], str], column: Callable[[Key], str]
) -> dict[str, list[Input]]:
    found: dict[str, list[Input]] = {}
    for each in inputs:
        name = row(each.key)
        found.setdefault(name, []).append(replace(each, row=name, column=column(each.key)))
    return found


def _tier_term(name: str) -> str:
    return TERMS.get(name, field_label(name))


def _choices(key: Key, present: Value) -> tuple[tuple[str, str], ...]:
    """What a field offers; nothing for one that is typed."""
    if isinstance(present, bool):
        return YES_NO
    words = {"pause_method": Tier.PauseMethod.choices, "idle_action": Tier.IdleAction.choices}
    return tuple((str(value), str(label)) for value, label in words.get(key[2], []))


def _text(key: Key, value: Value) -> str:
    """A value as it is typed: lengths with their units."""
    if key[2].endswith("_seconds") and isinstance(value, int):
        return seconds_text(value)
    text = value_text(key[2], value)
    return _CENTS.sub(r"\1", text) if key[0] == "price" else text


def _changed(typed: Mapping[Key, str], present: Values, kept: Values) -> Values:
    """The values that were changed from what the form showed, in the types of their fields."""
    shown = {**present, **kept}
    return {
        key: _read(text, present[key], key) for key, text in typed.items() if text != _text(key, shown[key])
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
    """A typed value; empty is none, except for words. Raises Refused `bad_scenario`, `bad_number` or
    `bad_duration`."""
    if isinstance(present, bool):
        return text == "yes"
    if key[0] in ("price", "peak_hours") or isinstance(present, str):
        return text or ("" if key[0] == "peak_hours" else None)
    if not text:
        return None
    if key[2].endswith("_units"):
        return units_read(text, param=" ".join(key))
    if key[2].endswith("_seconds"):
        return seconds_read(text, param=" ".join(key))
    try:
        return int(text)
    except ValueError:
        name = f"{key[1]} {field_label(key[2])}"
        raise invalid("bad_scenario", refusal_text("scenario_value", name=name), "scenario") from None
