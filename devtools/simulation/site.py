"""Input of simulations: the present site or a synthetic one, its demand, policy and prices."""

import re
from collections import Counter
from dataclasses import fields, replace
from datetime import datetime

from allocation.models import GpuModel, PolicyVersion
from allocation.services.policy.policies import policy_of
from allocation.services.snapshot.hardware import models_read
from allocation.services.snapshot.quota_rows import tiers_read
from allocation.services.snapshot.snapshot import snapshot_take
from billing.price_books import current_prices
from billing.rules import LEDGER_STEP
from devtools.simulation.metrics import Rates
from devtools.simulation.workload import Workload
from solver import UNITS_PER_GPU, Gpu, Limit, Model, Policy, Snapshot, Tier

# A synthetic site begins at the same second each time: 5 January 2026, a Monday.
SYNTHETIC_START = 1_767_571_200
DEFAULT_TIERS = (
    Tier("standard", pausable=False, counts=True, priority=50),
    Tier("flex", pausable=True, counts=True, priority=30, grace=600, protected=1_800, pauses=3),
    Tier("spot", pausable=True, counts=False, priority=10, grace=60),
)
_PER_NODE = 8
_NODES_PER_RACK = 4
_ENTRY = re.compile(r"([a-z0-9][a-z0-9.-]*)=(\d{1,6})")


def spec_read(text: str) -> dict[str, int]:
    """Returns `h100=64,l40s=32` as numbers by name. ValueError: bad form, or a name twice."""
    entries = [_ENTRY.fullmatch(entry.strip()) for entry in text.split(",")]
    found = {entry[1]: int(entry[2]) for entry in entries if entry}
    if len(found) < len(entries):
        raise ValueError(f"Not of the form name=number,name=number: {text}")
    return found


def demand_read(text: str, days: int) -> Workload:
    """Returns `load=110,tenants=4` as a demand over `days`. ValueError: an unknown name."""
    entries = spec_read(text) if text else {}
    known = {field.name for field in fields(Workload)} - {"days"}
    if entries.keys() - known:
        raise ValueError(f"A demand has {', '.join(sorted(known))}: {text}")
    demand = Workload(days=days, **entries)
    if demand.tenants < 1:
        raise ValueError("A demand has at least one tenant.")
    return demand


def site_live(now: datetime) -> Snapshot:
    """Returns the present site with all that runs and waits."""
    return snapshot_take(now)


def site_synthetic(fleet: dict[str, int], tenants: int) -> Snapshot:
    """Returns an empty site with the given number of GPUs of each class, on nodes of eight.

    Models and tiers are the portal's own, where it has them; an unknown class has no slices. Each
    tenant is guaranteed an equal part of every class and may borrow.
    """
    models = {model.slug: model for model in models_read()}
    of_class = dict(GpuModel.objects.order_by("-slug").values_list("gpu_class_id", "slug"))
    used = {name: models.get(of_class.get(name, "")) for name in fleet}
    known = {name: model or Model(name, 8, 7, "online", ()) for name, model in used.items()}
    return Snapshot(
        now=SYNTHETIC_START,
        models=tuple(known.values()),
        gpus=tuple(gpu for name, count in sorted(fleet.items()) for gpu in _gpus(known[name], name, count)),
        held=(),
        requests=(),
        extensions=(),
        limits=tuple(
            Limit(f"t{tenant}", None, name, count * UNITS_PER_GPU // tenants, None, None)
            for name, count in sorted(fleet.items())
            for tenant in range(tenants)
        ),
        tiers=tiers_read() or DEFAULT_TIERS,
    )


def limits_equal(site: Snapshot, tenants: set[str]) -> Snapshot:
    """Returns the site with its GPUs guaranteed in equal parts to the tenants, who may borrow."""
    counts = Counter(gpu.gpu_class for gpu in site.gpus)
    return replace(
        site,
        limits=tuple(
            Limit(tenant, None, name, count * UNITS_PER_GPU // len(tenants), None, None)
            for name, count in sorted(counts.items())
            for tenant in sorted(tenants)
        ),
    )


def policy_by_number(number: int | None) -> Policy:
    """Returns a version of the policy; without a number the live one, or the defaults.

    Raises:
        PolicyVersion.DoesNotExist: there is no such version.
    """
    if number is not None:
        return policy_of(PolicyVersion.objects.get(number=number))
    live = PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE).first()
    return policy_of(live) if live else Policy(version=0)


def rates_now(now: datetime) -> Rates:
    """Returns the present prices per GPU-hour, in steps of the ledger."""
    prices = current_prices(now).items()
    return {key: int(price.per_gpu_hour / LEDGER_STEP) for key, price in prices}


def _gpus(model: Model, gpu_class: str, count: int) -> list[Gpu]:
    return [
        Gpu(
            id=f"{gpu_class}-{number:05}",
            number=number,
            node=f"{gpu_class}-n{number // _PER_NODE:04}",
            rack=f"{gpu_class}-r{number // (_PER_NODE * _NODES_PER_RACK):03}",
            index=number % _PER_NODE,
            gpu_class=gpu_class,
            model=model.slug,
            domain=0,
            usable=True,
            mode=None if model.mode_switch == "online" else "whole",
        )
        for number in range(count)
    ]
