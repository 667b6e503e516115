"""The tier pages: read by everyone, changed by operators."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from tenants.access import Actor
from tenants.models import Tier, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import form_action_run
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.queries import tiers_all
from tenants.rules.operator_roles import Area
from tenants.services import (
    TierTerms,
    seconds_read,
    seconds_text,
    tier_changes,
    tier_set,
    whole_read,
    whole_sent,
)
from tenants.web.frame import operator_page, tenant_page
from tenants.web.parts import Field, counted
from tenants.words import refusal_text

FLAGS = ("pausable", "counts", "replaces")
TIMES = (
    "grace",
    "protected",
    "min_duration",
    "max_duration",
    "lead",
    "advance",
    "credit_cap",
    "more_time",
    "notice",
)
# What a form of before these terms means.
UNSENT = {"notice": "0", "late_share": "0", "min_duration": "0", "lead": "0"}
WHOLE_OR_NONE = ("max_pauses", "no_show_share", "max_open", "max_open_gpus")
OPTIONAL = ("description", *WHOLE_OR_NONE, "no_show_after")
LABELS = {
    "slug": "Short name, can't be changed later",
    "name": "Name",
    "priority": "Priority (higher goes first)",
    "grace": "Grace period before a pause",
    "protected": "Protected time after the start",
    "min_duration": "Shortest booking",
    "max_duration": "Longest booking",
    "lead": "Shortest notice before the start",
    "advance": "Advance booking window",
    "max_open": "Open bookings of a person (empty: no limit)",
    "max_open_gpus": "GPUs of a person's open bookings (empty: no limit)",
    "max_pauses": "Maximum number of pauses (empty: no limit)",
    "credit_cap": "Maximum credit for redone work",
    "more_times": "Extra-time requests per pause",
    "more_time": "Extra time per request",
    "notice": "Notice: giving up GPUs later than this before costs",
    "late_share": "Percent of the price that late time costs",
    "no_show_after": "No-show after (empty: as the policy)",
    "no_show_share": "Percent of a no-show's remaining price (empty: as the policy)",
    "description": "Description",
}
TERMS = {
    "name": "Name",
    "priority": "Priority",
    "pausable": "Can be paused",
    "grace_seconds": "Grace period before a pause",
    "protected_seconds": "Protected time after the start",
    "min_duration_seconds": "Shortest booking",
    "max_duration_seconds": "Longest booking",
    "lead_seconds": "Shortest notice before the start",
    "max_open": "Open bookings of a person",
    "max_open_gpus": "GPUs of a person's open bookings",
    "advance_seconds": "Advance booking window",
    "description": "Description",
    "counts_against_guarantee": "Counts against guarantees",
    "pause_method": "Pause method",
    "max_pauses": "Maximum number of pauses",
    "credit_cap_seconds": "Maximum credit for redone work",
    "more_times": "Extra-time requests per pause",
    "more_time_seconds": "Extra time per request",
    "replace_on_lost": "Restart elsewhere when the node is unreachable",
    "notice_seconds": "Notice",
    "late_share": "Late share in percent",
    "no_show_after_seconds": "No-show after",
    "no_show_share": "No-show share in percent",
    "idle_action": "Idle GPUs",
}
"""The label of each term in a comparison."""
EMPTY: dict[str, str] = {
    "priority": "50",
    "grace": "10m",
    "protected": "0",
    "min_duration": "0",
    "max_duration": "7d",
    "lead": "0",
    "advance": "28d",
    "credit_cap": "4h",
    "more_times": "0",
    "more_time": "0",
    "notice": "0",
    "late_share": "0",
    "method": Tier.PauseMethod.STOP,
}


@dataclass(frozen=True, slots=True)
class TierForm:
    """The form of a tier or of a new one; `failed` when it was refused.

    `key` makes its input ids unique.
    """

    key: str
    slug: str
    title: str
    pausable: bool
    counts: bool
    method: str
    idle_action: str
    replaces: bool
    fields: tuple[Field, ...]
    is_new: bool
    failed: bool

    @property
    def idle_actions(self) -> list[tuple[str, str]]:
        """Returns what can happen to idle GPUs."""
        return list(Tier.IdleAction.choices)

    @property
    def methods(self) -> list[tuple[str, str]]:
        """Returns the pause methods."""
        return Tier.PauseMethod.choices

    @property
    def has_field_error(self) -> bool:
        """Returns whether a field shows the refusal."""
        return any(field.error for field in self.fields)


@require_safe
@tenant_page
def tiers(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the tiers by priority."""
    context = {"tiers": [_shown(tier) for tier in tiers_all()]}
    return render(request, "tenants/tiers.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_tiers(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the tiers with a form for each and for a new one."""
    refusal = None
    if request.method == "POST":
        if (question := _question(request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(request, {"set": lambda form: _set(operator, form)})
        if refusal is None:
            return redirect("ops-tiers")
    shown = [_shown(tier) for tier in tiers_all()]
    is_new = "is_new" in request.POST
    sent = request.POST.get("slug") if refusal and not is_new else None
    forms = [
        (
            tier,
            _form_sent(request.POST, refusal, tier)
            if refusal and tier["slug"] == sent
            else _form(tier, flags=tier),
        )
        for tier in shown
    ]
    new = (
        _form_sent(request.POST, refusal, None)
        if refusal and is_new
        else _form(EMPTY, flags={"pausable": True, "counts": True}, is_new=True)
    )
    context = {"compared": shown, "tiers": forms, "new": new, "refusal": refusal}
    return render(request, "tenants/ops_tiers.html", context, status=422 if refusal else 200)


def _set(operator: User, form: QueryDict) -> str:
    slug = form.get("slug", "")
    if "is_new" in form and Tier.objects.filter(slug=slug).exists():
        raise invalid("slug_taken", refusal_text("tier_slug_taken"), "slug")
    tier = tier_set(operator=operator, slug=slug, terms=_terms(form), now=timezone.now())
    return f"{tier.name} saved. It applies to decisions from now on."


def _question(form: QueryDict) -> Confirmation | None:
    """Returns the confirmation before a tier changes; None for a new one or a refused request."""
    if form.get("act") != "set" or CONFIRMED_FIELD in form or "is_new" in form:
        return None
    try:
        changes = tier_changes(form.get("slug", ""), _terms(form))
    except Refused:
        return None
    if not changes:
        return None
    count = counted(len(changes), "term")
    return Confirmation(
        title=f"Change {count} of {form.get('name', '').strip()}?",
        lost=(
            *(
                f"{TERMS[field]}: {_term(field, before)} → {_term(field, after)}"
                for field, (before, after) in changes.items()
            ),
            "It applies to decisions from now on, including waiting bookings. Running bookings "
            "keep their GPUs and price.",
            "Every organisation's log records the change. To undo it, change the values back.",
        ),
        button=f"Save {form.get('name', '').strip()}, change {count}",
        back="/ops/tiers",
        keep="Keep it as it is",
    )


def _term(field: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "no limit" if field.startswith("max_") else "as the policy"
    if field.endswith("_seconds"):
        return seconds_text(int(str(value)))
    return str(value) or "none"


def _terms(form: QueryDict) -> TierTerms:
    """Reads the terms of the form. Raises Refused."""
    times = {
        f"{name}_seconds": seconds_read(form.get(name, UNSENT.get(name, "")), param=name) for name in TIMES
    }
    after = form.get("no_show_after", "")
    return TierTerms(
        name=form.get("name", ""),
        priority=whole_read(form.get("priority", ""), param="priority"),
        pausable="pausable" in form,
        description=form.get("description", ""),
        counts_against_guarantee="counts" in form,
        pause_method=form.get("method", Tier.PauseMethod.STOP),
        late_share=whole_read(form.get("late_share", UNSENT["late_share"]), param="late_share"),
        no_show_after_seconds=seconds_read(after, param="no_show_after") if after.strip() else None,
        max_pauses=whole_sent(form, "max_pauses"),
        no_show_share=whole_sent(form, "no_show_share"),
        idle_action=form.get("idle_action", Tier.IdleAction.TELL),
        max_open=whole_sent(form, "max_open"),
        max_open_gpus=whole_sent(form, "max_open_gpus"),
        more_times=whole_read(form.get("more_times", ""), param="more_times"),
        replace_on_lost="replaces" in form,
        **times,
    )


def _form_sent(sent: QueryDict, refusal: Refused, tier: Mapping[str, object] | None) -> TierForm:
    param = (refusal.param or "").removesuffix("_seconds")
    flags = {name: name in sent for name in FLAGS}
    form = _form(sent.dict(), flags=flags, is_new=tier is None)
    fields = tuple(
        replace(field, error=refusal.sentence) if field.name == param else field for field in form.fields
    )
    title = form.title if tier is None else str(tier["name"])
    return replace(form, title=title, fields=fields, failed=True)


def _form(values: Mapping[str, object], *, flags: Mapping[str, object], is_new: bool = False) -> TierForm:
    key = "new" if is_new else str(values.get("slug", ""))
    return TierForm(
        key=key,
        slug=str(values.get("slug", "")),
        title=str(values.get("name", "")),
        method=str(values.get("method", Tier.PauseMethod.STOP)),
        idle_action=str(values.get("idle_action", Tier.IdleAction.TELL)),
        **{name: bool(flags.get(name)) for name in FLAGS},
        fields=tuple(
            Field(
                name,
                label,
                str(values.get(name, "")),
                required=name not in OPTIONAL,
                id=f"{name}-{key}",
            )
            for name, label in LABELS.items()
            if is_new or name != "slug"
        ),
        is_new=is_new,
        failed=False,
    )


def _shown(tier: Tier) -> dict[str, object]:
    return {
        "slug": tier.slug,
        "name": tier.name,
        "priority": str(tier.priority),
        "pausable": tier.pausable,
        "counts": tier.counts_against_guarantee,
        "replaces": tier.replace_on_lost,
        "description": tier.description,
        "method": tier.pause_method,
        "idle_action": tier.idle_action,
        **{name: _or_empty(getattr(tier, name)) for name in WHOLE_OR_NONE},
        "late_share": str(tier.late_share),
        "no_show_after": ""
        if tier.no_show_after_seconds is None
        else seconds_text(tier.no_show_after_seconds),
        "more_times": str(tier.more_times),
        **{name: seconds_text(getattr(tier, f"{name}_seconds")) for name in TIMES},
    }


def _or_empty(value: int | None) -> str:
    return "" if value is None else str(value)
