"""Policy documents: versions of the tunable parameters of solver and nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

from django.db import transaction

from allocation.models import PolicyVersion
from allocation.rules.approvals import PLACE_POLICY_MAX, place_policy_of
from allocation.rules.nodes.no_shows import PRESENCE_POLICY_MAX, presence_policy_of
from allocation.rules.nodes.node_policy import NODE_POLICY_MAX, node_policy_of
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.parts import part_of
from allocation.services.policy.scenario_sites import scenario_snapshot
from allocation.services.policy.scenarios import (
    NOTHING,
    Key,
    Value,
    scenario_check,
    scenario_lines,
    scenario_try,
)
from allocation.services.snapshot.peaks import peaks_read
from allocation.services.snapshot.snapshot import snapshot_read
from allocation.words.refusals import refusal_text
from solver import Plan, Policy, Snapshot, solve
from solver.model.policy import ANY_TIER, ORDER_KEYS, VICTIM_RULES
from tenants.audit import platform_record
from tenants.models import GpuClass, Tier
from tenants.platform.errors import Refused, invalid, missing
from tenants.services import seconds_read, seconds_text, whole_read

_DAY = 86_400
# Largest value of each parameter; all are whole numbers.
MOST = {
    "grid": _DAY,
    "freeze_horizon": _DAY,
    "horizon": 366 * _DAY,
    "half_life": 366 * _DAY,
    "share_step": 1_000_000,
    "age_step": 366 * _DAY,
    "cool_down": 30 * _DAY,
    "notice_margin": 3_600,
    "share_owners": 1_000,
    "neighbourhoods": 10_000,
    "exact_neighbourhoods": 1_000,
    "mode_changes": 1,
    "mode_patience": _DAY,
    "patience": 366 * _DAY,
    "epoch": _DAY,
    "plan_depth": 1_000_000,
    "long_run_weight": 1_000,
    "future_requests": 1_000,
    "host_core_cost": 56_000,
    "host_cores_off": 1_000_000,
    "moved_bookings": 1_000,
    "node_sets": 100,
    "exact_pieces": 200,
    "alternatives": 10,
}
# Lists of names: all that are known.
LISTS = {"victim_rules": VICTIM_RULES, "order": ORDER_KEYS}
# Seconds by tier, and the largest value.
TIER_SECONDS = {"borrow_windows": 28 * _DAY, "headroom_for": 28 * _DAY}
# Whole numbers by class, GPUs or percent, and the largest value.
CLASS_NUMBERS = {"headroom": 100_000, "class_weights": 10_000, "slice_ahead": 100_000}
# What nodes do, and no decision.
NOT_SOLVERS = {"slice_ahead"}
BY_NAME = TIER_SECONDS | CLASS_NUMBERS
# The bounds of soft places have parameters of their own; parts come with an activation.
_NOT_SET = ("soft_bounds", "parts")
PolicyValue = int | tuple[str, ...] | dict[str, int]
# Smallest value; 1 for the others.
LEAST = {
    "mode_changes": 0,
    "mode_patience": 0,
    "plan_depth": 0,
    **dict.fromkeys(PRESENCE_POLICY_MAX, 0),
}
# Exceptions that a defect in pure code raises.
SOLVER_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


def policy_of(version: PolicyVersion) -> Policy:
    """The policy of a version's document and its parts; missing parameters have their defaults.

    Raises:
        ValueError: an unknown name, a value that is not a whole number in its range, or a grid
            that is longer than the horizon.
    """
    policy = policy_read(version.document, version.number)
    if not version.parts:
        return policy
    parts = (part_of(row, policy_read({**version.document, **row["values"]}, 0)) for row in version.parts)
    return replace(policy, parts=tuple(parts))


def policy_read(document: object, number: int) -> Policy:
    """The policy of a document. Raises ValueError, which names the entry."""
    entries: dict[Any, Any] = document if isinstance(document, dict) else {"": document}
    for name, value in entries.items():
        _entry_check(name, value)
    solvers = {name: each for name, each in entries.items() if name in MOST}
    solvers |= {name: tuple(entries[name]) for name in LISTS if name in entries}
    solvers |= {
        name: tuple(sorted(entries[name].items())) for name in BY_NAME.keys() - NOT_SOLVERS if name in entries
    }
    bounds = place_policy_of(entries).solver_bounds
    policy = Policy(version=number, soft_bounds=bounds, **solvers)
    if policy.grid > policy.horizon:
        raise ValueError(refusal_text("policy_grid"))
    if not node_policy_of(entries).is_escalation_valid:
        raise ValueError(refusal_text("policy_escalation"))
    return policy


def _entry_check(name: object, value: object) -> None:
    known = MOST | NODE_POLICY_MAX | PRESENCE_POLICY_MAX | PLACE_POLICY_MAX
    if isinstance(name, str) and name in LISTS:
        _names_check(name, value)
        return
    if isinstance(name, str) and name in BY_NAME:
        _by_name_check(name, value)
        return
    if not isinstance(name, str) or name not in known:
        names = ", ".join([*known, *LISTS, *BY_NAME])
        raise ValueError(refusal_text("policy_unknown", name=repr(str(name)[:40]), known=names))
    least = LEAST.get(name, 1)
    if type(value) is not int or not least <= value <= known[name]:
        raise ValueError(refusal_text("policy_whole", name=name, least=least, most=known[name]))


def _names_check(name: str, value: object) -> None:
    known = ", ".join(LISTS[name])
    if not isinstance(value, list | tuple):
        raise ValueError(refusal_text("policy_list", name=name, known=known))  # noqa: TRY004 (input)
    for place, each in enumerate(value):
        if each not in LISTS[name]:
            raise ValueError(refusal_text("policy_name", name=name, each=repr(str(each)[:40]), known=known))
        if each in value[:place]:
            raise ValueError(refusal_text("policy_twice", name=name, each=repr(each)))
    if name == "order":
        _order_check(list(value))


def _by_name_check(name: str, value: object) -> None:
    most = BY_NAME[name]
    if not isinstance(value, dict) or not all(
        isinstance(tier, str) and type(seconds) is int and 0 <= seconds <= most
        for tier, seconds in value.items()
    ):
        text = "policy_tiers" if name in TIER_SECONDS else "policy_classes"
        raise ValueError(refusal_text(text, name=name, most=most))


def _order_check(order: list[str]) -> None:
    """Pauses compare tiers first, so the queue does too: else a paused booking would be first."""
    missing = [each for each in ORDER_KEYS if each not in order]
    if missing:
        raise ValueError(refusal_text("policy_order_keys", missing=", ".join(missing)))
    if order[0] != ORDER_KEYS[0]:
        raise ValueError(refusal_text("policy_order_first", key=repr(ORDER_KEYS[0])))


def policy_tiers_check(policy: Policy, document: Mapping[str, Any]) -> None:
    """Raises ValueError for a tier or a class that does not exist, of a policy and its document."""
    known = set(Tier.objects.values_list("slug", flat=True))
    named = [tier for tier, _ in policy.borrow_windows if tier != ANY_TIER]
    # Which work has to start at once is said tier by tier.
    named += [tier for tier, _ in policy.headroom_for]
    unknown = next((tier for tier in named if tier not in known), None)
    if unknown is not None:
        names = ", ".join(sorted(known))
        raise ValueError(refusal_text("policy_tier", tier=repr(unknown[:40]), known=names))
    classes = set(GpuClass.objects.values_list("slug", flat=True))
    counted = (*dict(policy.headroom), *dict(policy.class_weights), *document.get("slice_ahead", {}))
    missing_class = next((name for name in counted if name not in classes), None)
    if missing_class is not None:
        names = ", ".join(sorted(classes))
        raise ValueError(refusal_text("policy_class", name=repr(missing_class[:40]), known=names))


def policy_names(text: str) -> list[str]:
    """The names in a text such as `a, b`; `none` is an empty list."""
    names = [each.strip() for each in text.split(",")]
    return [] if names == ["none"] else [each for each in names if each]


def tier_seconds_read(text: str, *, param: str) -> dict[str, int]:
    """The durations by tier in a text such as `standard 4h, premium 30m`; `none` is none.

    Raises:
        Refused: `bad_duration`, or `bad_policy` for a tier without a duration.
    """
    found: dict[str, int] = {}
    for entry in policy_names(text):
        tier, _, duration = entry.partition(" ")
        if not duration or tier in found:
            raise invalid("bad_policy", refusal_text("policy_tier_text", entry=entry), param)
        found[tier] = seconds_read(duration, param=param)
    return found


def by_name_read(name: str, text: str) -> dict[str, int]:
    """The value of a parameter with an entry for each tier or class, from a text.

    Raises:
        Refused: `bad_duration`, `bad_count`, or `bad_policy` for a name without a value.
    """
    if name in TIER_SECONDS:
        return tier_seconds_read(text, param=name)
    found: dict[str, int] = {}
    for entry in policy_names(text):
        gpu_class, _, count = entry.partition(" ")
        if not count or gpu_class in found:
            raise invalid("bad_policy", refusal_text("policy_class_text", entry=entry), name)
        found[gpu_class] = whole_read(count, param=name)
    return found


def by_name_text(name: str, value: dict[str, int]) -> str:
    """The same value as text that `by_name_read` accepts."""
    if name in TIER_SECONDS:
        return tier_seconds_text(value)
    return ", ".join(f"{each} {value[each]}" for each in sorted(value)) or "none"


def tier_seconds_text(value: dict[str, int]) -> str:
    """The durations by tier as text that `tier_seconds_read` accepts."""
    return ", ".join(f"{tier} {seconds_text(value[tier])}" for tier in sorted(value)) or "none"


def policy_tunables(policy: Policy) -> dict[str, PolicyValue]:
    """Every solver parameter with its value, including defaults."""
    found = {
        each.name: getattr(policy, each.name) for each in fields(policy)[1:] if each.name not in _NOT_SET
    }
    return found | {name: dict(found[name]) for name in BY_NAME if name not in NOT_SOLVERS}


def policy_values(document: dict[str, Any]) -> dict[str, PolicyValue]:
    """Every parameter of a valid document with its value, including defaults."""
    own = asdict(node_policy_of(document)) | asdict(presence_policy_of(document))
    own |= asdict(place_policy_of(document))
    own |= {name: dict(document.get(name, {})) for name in sorted(NOT_SOLVERS)}
    return policy_tunables(policy_read(document, 0)) | own


def policy_changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, PolicyValue]]:
    """The parameters that differ, with their values `before` and `after`."""
    old, new = policy_values(before), policy_values(after)
    changed = [name for name in new if old[name] != new[name]]
    return {
        "before": {name: old[name] for name in changed},
        "after": {name: new[name] for name in changed},
    }


def policy_check(document: object, now: datetime) -> int:
    """Tries a document on the current calendar. Returns how many waiting or planned bookings would
    start at another time than by the live policy. Saves nothing.

    Raises:
        Refused: `bad_policy`.
    """
    snapshot = snapshot_read(now)
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    try:
        with gc_paused():
            policy = policy_read(document, 0)
            after = solve(with_peaks(snapshot, policy, now), policy)
    except SOLVER_FAULTS as error:
        raise _not_taken(error) from error
    with gc_paused():
        before = solve(snapshot, policy_of(live))
    starts, others = _starts(before), _starts(after)
    return sum(starts.get(each) != others.get(each) for each in starts.keys() | others.keys())


def with_peaks(snapshot: Snapshot, policy: Policy, now: datetime) -> Snapshot:
    """The snapshot with the peaks at which this policy keeps GPUs free, instead of the live one's."""
    return replace(snapshot, peaks=peaks_read(now, dict(policy.headroom)))


def _starts(plan: Plan) -> dict[str, int | None]:
    found: dict[str, int | None] = {row.booking: row.starts for row in plan.assigns}
    return found | {row.booking: row.starts for row in plan.waits}


def _not_taken(error: Exception) -> Refused:
    return invalid("bad_policy", refusal_text("bad_policy", error=error)[:300], "document")


def policy_draft(
    *,
    document: object,
    now: datetime,
    created_by_id: int | None = None,
    scenario: Mapping[str, Any] | None = None,
) -> PolicyVersion:
    """Stores a version that nothing uses, after a dry run. The `scenario` is what else it sets.

    Raises:
        Refused: `bad_policy`, `bad_scenario`, or as the services that would set its values now.
    """
    values = scenario_check(scenario) if scenario else {}
    policy_dry_run(document, now, values)
    with transaction.atomic():
        live = policy_lock()
        scenario_try(values, now)
        version = policy_add(document, now, created_by_id, scenario=scenario)
        changes = policy_changes(live.document, version.document)
        if scenario:
            changes["after"]["scenario"] = tuple(scenario_lines(scenario))
        platform_record(
            operator_id=created_by_id,
            action="policy.drafted",
            target=("policy", version.number),
            now=now,
            **changes,
        )
    return version


def policy_lock() -> PolicyVersion:
    """Locks the versions until the transaction ends; returns the live one."""
    PolicyVersion.objects.select_for_update().order_by("number").first()
    return PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)


def policy_add(
    document: object,
    now: datetime,
    created_by_id: int | None,
    parts: Sequence[Mapping[str, Any]] = (),
    scenario: Mapping[str, Any] | None = None,
) -> PolicyVersion:
    """Adds a draft with the next number, while the versions are locked."""
    return PolicyVersion.objects.create(
        number=PolicyVersion.objects.latest("number").number + 1,
        document=document,
        parts=[dict(row) for row in parts],
        scenario=dict(scenario or {}),
        state=PolicyVersion.State.DRAFT,
        created=now,
        created_by_id=created_by_id,
    )


def policy_version(number: int) -> PolicyVersion:
    """Returns a version. Raises Refused `not_found`."""
    version = PolicyVersion.objects.select_related("created_by").filter(number=number).first()
    if version is None:
        raise missing("policy version")
    return version


def policy_differences(before: PolicyVersion, after: PolicyVersion) -> dict[str, dict[str, PolicyValue]]:
    """Returns `policy_changes` of two versions.

    Raises:
        Refused: `bad_policy`, if this software can't read one of them any more.
    """
    try:
        return policy_changes(before.document, after.document)
    except ValueError as error:
        raise _not_taken(error) from error


def policy_dry_run(document: object, now: datetime, scenario: Mapping[Key, Value] = NOTHING) -> None:
    """Decides the present site by a document, with the values of a scenario. Raises Refused
    `bad_policy`."""
    try:
        policy = policy_read(document, 0)
        policy_tiers_check(policy, document if isinstance(document, dict) else {})
        snapshot = with_peaks(scenario_snapshot(snapshot_read(now), scenario), policy, now)
        with gc_paused():
            solve(snapshot, policy)
    except SOLVER_FAULTS as error:
        raise _not_taken(error) from error
