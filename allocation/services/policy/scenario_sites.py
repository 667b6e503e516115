"""Snapshots with the values of a scenario: tiers, limits, caps of GPU-hours, and limits at some times."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from allocation.services.policy.scenarios import Key, Value
from allocation.services.snapshot.cap_rows import caps_of
from allocation.services.snapshot.inner_limit_rows import inner_limits_read, window_steps_of
from allocation.services.snapshot.quota_rows import quotas_read
from solver import Limit, Snapshot
from solver import Tier as SolverTier
from tenants.models import Project, Quota, Tenant

# Fields of a tier by those that the solver has of it.
_SOLVER_TIER = {
    "priority": "priority",
    "pausable": "pausable",
    "counts_against_guarantee": "counts",
    "grace_seconds": "grace",
    "protected_seconds": "protected",
    "max_pauses": "pauses",
}
_SOLVER_LIMIT = {
    "guaranteed_units": "guaranteed",
    "borrow_limit_units": "borrow",
    "lend_limit_units": "lend",
    "weight": "weight",
}
OwnerClass = tuple[str, str]
"""The id of an organisation or project, and a class."""


def scenario_site(site: Snapshot, wanted: Mapping[Key, Value]) -> Snapshot:
    """A snapshot with the tiers and limits of a scenario."""
    if not wanted:
        return site
    tiers = dict[str, dict[str, Any]]()
    for (kind, whose, name), value in wanted.items():
        if kind == "tier" and name in _SOLVER_TIER:
            tiers.setdefault(whose, {})[_SOLVER_TIER[name]] = value
    limits = _quota_values(wanted)
    requests, running = (
        tuple(
            replace(each, priority=tiers.get(each.tier, {}).get("priority", each.priority)) for each in rows
        )
        for rows in (site.requests, site.running)
    )
    return replace(
        site,
        tiers=tuple(_tier_of(each, tiers) for each in site.tiers),
        limits=tuple(_limit_of(each, limits) for each in site.limits),
        requests=requests,
        running=running,
    )


def scenario_snapshot(snapshot: Snapshot, wanted: Mapping[Key, Value]) -> Snapshot:
    """A snapshot with the tiers, limits and caps of a scenario, and the limits at some times that
    follow from them."""
    found, changed = scenario_site(snapshot, wanted), _quota_values(wanted).keys()
    if not changed:
        return found
    quotas, at = quotas_under(quotas_read(), wanted), datetime.fromtimestamp(snapshot.now, UTC)
    inner = inner_limits_read(quotas)
    caps = caps_of((*quotas, *inner.lab_caps), snapshot.used, at, inner.labs)
    steps = window_steps_of(inner, quotas, at, guarantees=snapshot.guarantees)
    own = {each.id for each in steps if (each.owner, each.gpu_class) in changed}
    return replace(
        found,
        caps=(
            *(each for each in found.caps if (each.owner, each.gpu_class) not in changed),
            *(each for each in caps if (each.owner, each.gpu_class) in changed),
        ),
        overrides=(
            *(each for each in found.overrides if each.id not in own),
            *(each for each in steps if each.id in own),
        ),
    )


def quotas_under(rows: Iterable[Quota], wanted: Mapping[Key, Value]) -> list[Quota]:
    """Copies of quotas with the values of a scenario, which are not stored."""
    values, found = _quota_values(wanted), []
    for row in rows:
        own = copy(row)
        for name, value in values.get((str(row.project_id or row.tenant_id), row.gpu_class_id), {}).items():
            setattr(own, name, value)
        found.append(own)
    return found


def _quota_values(wanted: Mapping[Key, Value]) -> dict[OwnerClass, dict[str, Any]]:
    """The values of quotas by the owner's id and the class."""
    found: dict[OwnerClass, dict[str, Any]] = {}
    rows = [(whose, name, value) for (kind, whose, name), value in wanted.items() if kind == "quota"]
    ids = _owner_ids() if rows else {}
    for whose, name, value in rows:
        owner, _, gpu_class = whose.rpartition("/")
        found.setdefault((ids.get(owner, ""), gpu_class), {})[name] = value
    return found


def _tier_of(tier: SolverTier, changed: Mapping[str, dict[str, Any]]) -> SolverTier:
    return replace(tier, **changed.get(tier.slug, {}))


def _limit_of(limit: Limit, changed: Mapping[OwnerClass, dict[str, Any]]) -> Limit:
    values = changed.get((limit.owner, limit.gpu_class), {})
    return replace(
        limit, **{_SOLVER_LIMIT[name]: each for name, each in values.items() if name in _SOLVER_LIMIT}
    )


def _owner_ids() -> dict[str, str]:
    """Ids of organisations, and of projects as `organisation/project`."""
    projects = Project.objects.values_list("tenant__slug", "slug", "id")
    return {slug: str(key) for slug, key in Tenant.objects.values_list("slug", "id")} | {
        f"{tenant}/{slug}": str(key) for tenant, slug, key in projects
    }
