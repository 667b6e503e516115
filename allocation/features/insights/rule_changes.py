"""What else changed in a time: the log's entries of policy, prices, quotas, tiers and the fleet.

Operators see those of the platform. An organisation's admins see those of its own log, to which changes of
prices and tiers and the numbers of policies are written, too. Its leads see of that log the policies, the
prices, and the quotas of the organisation and of their projects. Nobody sees another organisation's.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from uuid import UUID

from django.db.models import Q

from billing.rules import Period
from tenants.access import Actor
from tenants.models import AuditEntry
from tenants.rules.audit_words import ACTIONS, Change, Labels, changes_of, object_name, with_labels
from tenants.services.sealed_log.search import LogFilter, log_detail, log_entries, log_labels, log_people

KINDS = {
    "policy": ("policy.published", "policy.rolled_back", "policy.returned"),
    "prices": ("prices.published",),
    "quota": (
        "quota.set",
        "quota_window.added",
        "quota_window.removed",
        "person_quota.set",
        "override.granted",
        "override.ended",
        "tier.set",
        "tier_version.set",
        "tier_version.withdrawn",
    ),
    "fleet": (
        "node.approved",
        "node.drained",
        "node.fenced",
        "node.locked_out",
        "gpu.returned",
        "gpu_class.set",
        "gpu_class.removed",
        "maintenance.planned",
        "maintenance.changed",
        "maintenance.ended",
        "freeze.begun",
        "freeze.ended",
        "stop.begun",
        "stop.ended",
    ),
}
KIND_OF = {action: kind for kind, actions in KINDS.items() for action in actions}
MOST, MOST_VALUES, MOST_NAMES = 200, 6, 4


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A change: when, of what (a key of `KINDS`), by whose act, and what it says."""

    at: datetime
    kind: str
    who: str
    sentence: str
    values: tuple[str, ...]
    act: str = ""
    """The sentence with `{object}` for the name."""
    name: str = ""

    @property
    def day(self) -> date:
        """Returns its UTC day."""
        return self.at.astimezone(UTC).date()


@dataclass(frozen=True, slots=True)
class StepChanges:
    """The changes of one step of a chart, with their number over it."""

    number: int
    begins: date
    rows: tuple[RuleChange, ...]


def changes_seen(actor: Actor, days: Period) -> list[RuleChange]:
    """The changes of these UTC days that a member sees: admins and leads do."""
    if actor.is_tenant_admin:
        return rule_changes(actor.tenant_id, days)
    led = [project for project in actor.roles if actor.may_lead(project)]
    return rule_changes(actor.tenant_id, days, led) if led else []


def rule_changes(
    tenant_id: UUID | None, days: Period, led: Collection[UUID] | None = None
) -> list[RuleChange]:
    """The changes of these UTC days, the oldest first; of more than `MOST` the newest. With `led` those that
    leads of these projects see."""
    since, until = (datetime.combine(day, time(), UTC) for day in (days.starts, days.ends))
    wanted = LogFilter(since=since, until=until)
    found = log_entries(tenant_id, wanted).filter(action__in=KIND_OF)
    if led is not None:
        own = Q(detail__project=None) | Q(detail__project__in=[str(each) for each in led])
        found = found.filter(Q(action__in=(*KINDS["policy"], *KINDS["prices"])) | Q(action="quota.set") & own)
    rows = list(found.order_by("-at", "-id")[:MOST])
    names, labels = log_people(rows), log_labels(tenant_id)
    return [_change(row, names.get(row.actor_id or 0, ""), labels) for row in reversed(rows)]


def by_step(changes: Iterable[RuleChange], steps: Sequence[date]) -> list[StepChanges]:
    """The changes by the steps in which they were, numbered from 1 on."""
    found: dict[date, list[RuleChange]] = {}
    for change in together(changes):
        begins = max((step for step in steps if step <= change.day), default=None)
        if begins is not None:
            found.setdefault(begins, []).append(change)
    rows = enumerate(sorted(found), start=1)
    return [StepChanges(number, begins, tuple(found[begins])) for number, begins in rows]


def together(changes: Iterable[RuleChange]) -> list[RuleChange]:
    """The changes with those of the same act by one person on one day as one line, without their values."""
    found: dict[tuple[str, str, date], list[RuleChange]] = {}
    for change in changes:
        found.setdefault((change.who, change.act, change.day), []).append(change)
    return [_joined(same) for same in found.values()]


def _joined(same: Sequence[RuleChange]) -> RuleChange:
    first = same[0]
    if len(same) == 1:
        return first
    names = list(dict.fromkeys(each.name for each in same))
    shown = ", ".join(names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    times = "" if "{object}" in first.act else f", {len(same)} times"
    sentence = first.act.format(object=shown + more) + times
    return replace(first, sentence=sentence, values=())


def _change(row: AuditEntry, who: str, labels: Labels) -> RuleChange:
    detail = with_labels(log_detail(row, {}), labels)
    name = object_name(row.object_kind, row.object_id, detail, labels)
    values = [_value(each) for each in changes_of(detail)]
    if len(values) > MOST_VALUES:
        values = [*values[:MOST_VALUES], f"and {len(values) - MOST_VALUES} more"]
    act = ACTIONS[row.action]
    return RuleChange(
        row.at, KIND_OF[row.action], who or "The portal", act.format(object=name), tuple(values), act, name
    )


def _value(change: Change) -> str:
    """A changed value, such as `weight: 1 to 2`; what was not there before alone."""
    return (
        f"{change.name}: {change.before} to {change.after or 'nothing'}"
        if change.before
        else f"{change.name}: {change.after}"
    )
