"""The policy: every value with its meaning, and a form that publishes the next version."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import PolicyVersion
from allocation.rules.approvals import PLACE_POLICY_MAX
from allocation.rules.nodes.no_shows import PRESENCE_POLICY_MAX
from allocation.rules.nodes.node_policy import NODE_POLICY_MAX
from allocation.services.policy.policies import (
    LEAST,
    LISTS,
    MOST,
    TIER_SECONDS,
    PolicyValue,
    policy_changes,
    policy_check,
    policy_names,
    policy_publish,
    policy_read,
    policy_values,
    tier_seconds_read,
    tier_seconds_text,
)
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.services import seconds_read, seconds_text, whole_read
from tenants.web.frame import operator_page
from tenants.web.parts import counted

VERSIONS_SHOWN = 20
NO_NAMES = "none"
LIMITS = MOST | NODE_POLICY_MAX | PRESENCE_POLICY_MAX | PLACE_POLICY_MAX
# Units of counts and shares; all other values are durations.
COUNTS = {
    "share_step": "millionths of a class",
    "share_owners": "owners",
    "neighbourhoods": "tries",
    "plan_depth": "bookings",
    "exact_neighbourhoods": "tries",
    "mode_changes": "0 or 1",
    "no_show_share": "%",
    "idle_below": "%",
    "soft_gpus": "GPUs",
    "soft_borrow": "%",
    "long_run_weight": "times",
    "future_requests": "requests",
    "host_core_cost": "units of a GPU (56,000)",
    "host_cores_off": "thousandths of a core",
    "moved_bookings": "bookings",
    "node_sets": "sets",
    "exact_pieces": "pieces",
    "alternatives": "options",
}
GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Time and order",
        (
            ("grid", "Start time step", "Start times are multiples of this."),
            ("freeze_horizon", "Fixed starts", "Starts within this time no longer move."),
            ("horizon", "Planning horizon", "No booking is planned later than this."),
            ("half_life", "Half-life of past use", "After this time, use counts half."),
            ("share_step", "Fair-share step", "Smaller differences are ignored."),
            ("age_step", "Waiting-time step", "Smaller differences are ignored."),
            ("order", "Order of the queue", "After the bands; the first key decides first."),
            (
                "patience",
                "Longest wait behind others",
                "After it, a booking goes before borrowers.",
            ),
            ("epoch", "Refresh of past use", "Shares, and so the queue, change at its multiples."),
            (
                "plan_depth",
                "Planned starts",
                "Only so many of the queue get one; those behind start when there is room. 0: all.",
            ),
        ),
    ),
    (
        "Pauses",
        (
            (
                "cool_down",
                "Cool-down after a pause",
                "A booking is not paused again for this long.",
            ),
            (
                "victim_rules",
                "Rules that pause",
                f"Names, separated by commas. {NO_NAMES}: nobody is paused.",
            ),
            (
                "borrow_windows",
                "Longest loan without a pause",
                "By tier that is never paused, * for all others, such as standard 4h. "
                f"Longer bookings wait for their guarantee. {NO_NAMES}: no such tier borrows.",
            ),
            (
                "notice_margin",
                "Notice margin",
                "Sent this much earlier, to be in time between cycles.",
            ),
        ),
    ),
    (
        "Placement",
        (
            ("share_owners", "Owners per shared GPU", "Above 1, unrelated owners can share a GPU."),
            (
                "neighbourhoods",
                "Improvement moves per cycle",
                "Attempts to improve planned bookings.",
            ),
            (
                "exact_neighbourhoods",
                "Exact improvement moves",
                "Of these, exact ones: slower and never worse.",
            ),
            ("mode_changes", "Mode changes by reset", "0: GPUs that need a reset keep theirs."),
            (
                "mode_patience",
                "Minimum gain of a mode change",
                "A start must be this much earlier.",
            ),
        ),
    ),
    (
        "Placement score",
        (
            ("long_run_weight", "Weight of later use", "Against the use that is possible at once."),
            ("future_requests", "Requests looked ahead", "Of the recent mix of demand."),
            ("host_core_cost", "Cost per core out of ratio", "Free cores per free GPU of a node."),
            ("host_cores_off", "Most cores that count", "More make no difference."),
        ),
    ),
    (
        "Search limits",
        (
            ("moved_bookings", "Bookings moved for one", "Planned ones, at their own time."),
            ("node_sets", "Sets of nodes tried for it", "Those with the fewest moves first."),
            ("exact_pieces", "Pieces of an exact search", "GPUs, slices and newcomers together."),
            ("alternatives", "Alternatives of a refusal", "Other windows, classes or slices."),
        ),
    ),
    (
        "Nodes",
        (
            ("silent_after", "Unreachable after", "The node gets no new work."),
            ("heard_again", "Reachable again after", "Reports must arrive without gaps."),
            ("silent_limit", "Move planned work after", "Planned bookings leave the node."),
            ("start_slow", "Slow start after", "The owner is notified."),
            ("unbooked_warn_after", "Warn unbooked processes", "0: never."),
            ("unbooked_end_after", "End unbooked processes", "0: never."),
        ),
    ),
    (
        "Unused bookings",
        (
            ("no_show_after", "End after", "0: never."),
            ("no_show_share", "No-show fee", "Percent of the remaining price."),
            ("idle_after", "Idle after", "0: never. The tier says what happens then."),
            ("idle_below", "Idle below", "Percent of use of each GPU."),
        ),
    ),
    (
        "Requests for approval",
        (
            ("soft_hold", "Keep a place for", "The longest time; then the request waits without."),
            ("soft_margin", "Give it up before its start", "Others can still use it."),
            ("soft_gpus", "Kept for a project", "For all of its requests together."),
            ("soft_borrow", "Kept above a guarantee", "Percent of a class; fixed windows only."),
            ("decision_time", "Time to decide", "Flexible requests are placed later than that."),
        ),
    ),
)
LABELS = {name: label for _, fields in GROUPS for name, label, _ in fields}


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
    """Shows the live version in a form; POST shows the differences, then publishes."""
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
        made = policy_publish(document=document, now=now, created_by_id=operator.id)
    except Refused as refusal:
        return _page(request, live, refusal)
    messages.success(request, f"Policy version {made.number} published. It applies from the next decision.")
    return redirect("ops-policy")


def _page(request: HttpRequest, live: PolicyVersion, refusal: Refused | None) -> HttpResponse:
    typed = request.POST if refusal else None
    groups = [
        (title, [_field(*each, live.document, typed, refusal) for each in fields]) for title, fields in GROUPS
    ]
    shown = [field for _, fields in groups for field in fields]
    versions = list(PolicyVersion.objects.select_related("created_by").order_by("-number"))
    context = {
        "live": live,
        "groups": groups,
        "own": sum(field.is_own for field in shown),
        "refusal": None if any(field.error for field in shown) else refusal,
        "versions": [
            (version, list(_words(_earlier(versions, place), version.document)))
            for place, version in enumerate(versions[:VERSIONS_SHOWN])
        ],
    }
    return render(request, "allocation/ops_policy.html", context, status=422 if refusal else 200)


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
    count = len(changes["after"])
    values = counted(count, "value")
    starts = counted(moved, "start")
    return Confirmation(
        title=f"Publish policy version {number + 1}?",
        lost=(
            *_lines(changes),
            f"With the current queue, {starts} would move."
            if moved
            else "With the current queue, no start would move.",
            "These values have not been simulated. In a checkout of the portal's code, "
            "python -m devtools.simulation replays weeks of demand with a published version.",
            f"It applies from the next decision. To undo this, publish the values of version {number} again.",
        ),
        button=f"Publish version {number + 1}, change {values}" + (f", move {starts}" if moved else ""),
        back="/ops/policy",
        keep=f"Keep version {number}",
    )


def _lines(changes: Mapping[str, Mapping[str, PolicyValue]]) -> Iterator[str]:
    for name, after in changes["after"].items():
        before = policy_text(name, changes["before"][name])
        yield f"{LABELS.get(name, name)}: {before} → {policy_text(name, after)}"


def _earlier(versions: list[PolicyVersion], place: int) -> dict[str, Any]:
    """Returns the document that a version is compared with: a draft was never in force."""
    earlier = versions[place + 1 :]
    used = (each for each in earlier if each.state != PolicyVersion.State.DRAFT)
    return next((each.document for each in used), {})


def _words(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yields what a version changed; nothing for a document that is no longer readable."""
    try:
        yield from _lines(policy_changes(before, after))
    except ValueError:
        return


def policy_text(name: str, value: PolicyValue) -> str:
    """Returns a value as it is shown and typed."""
    if isinstance(value, tuple):
        return ", ".join(value) or NO_NAMES
    if isinstance(value, dict):
        return tier_seconds_text(value)
    return f"{value}" if name in COUNTS else seconds_text(value)


urlpatterns = [path("ops/policy", ops_policy, name="ops-policy")]
