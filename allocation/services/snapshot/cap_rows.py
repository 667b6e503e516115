"""GPU-hour caps in a snapshot: rolling ones, or those of months, which may carry over what is left."""

from collections.abc import Collection, Iterable
from datetime import datetime

from allocation.services.snapshot.limits_in_time import CapRule, caps_at
from solver import Cap, LabLimit, Used
from tenants.models import LabQuota, Quota


def cap_rules_of(rows: Iterable[Quota | LabQuota], labs: Iterable[LabLimit] = ()) -> tuple[CapRule, ...]:
    """The rules of rows that have a cap. `labs` say which projects count in the cap of a lab."""
    inside = {lab.owner: frozenset(lab.projects) for lab in labs}
    return tuple(
        CapRule(
            _owner(row),
            row.gpu_class_id,
            row.cap_gpu_hours,
            row.cap_days,
            row.cap_carries,
            inside.get(_owner(row), frozenset()),
        )
        for row in rows
        if row.cap_gpu_hours is not None
    )


def caps_of(
    rows: Iterable[Quota | LabQuota],
    used: Collection[Used],
    now: datetime,
    labs: Iterable[LabLimit] = (),
) -> tuple[Cap, ...]:
    """The caps of rows at an instant; `labs` as in `cap_rules_of`."""
    return caps_at(cap_rules_of(rows, labs), used, now)


def rolling_caps_of(rows: Iterable[Quota | LabQuota]) -> tuple[Cap, ...]:
    """Only the rolling caps: a request above one of them can never start."""
    return tuple(rule.rolling for rule in cap_rules_of(rows) if rule.rolling is not None)


def _owner(row: Quota | LabQuota) -> str:
    if isinstance(row, LabQuota):
        return str(row.lab_id)
    return str(row.project_id or row.tenant_id)
