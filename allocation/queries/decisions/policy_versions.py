"""Versions of the policy with their states: what waits, what is tried, and since when which is in force."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allocation.models import PolicyActivation, PolicyApproval, PolicyVersion
from allocation.points.policies import UNTRIED, PolicyTried, policies_tried

SHADOW, TRIAL, APPROVED, PARTIAL = "shadow", "trial", "approved", "partial"
STATES = ("draft", SHADOW, TRIAL, APPROVED, PARTIAL, "live", "retired")
State = PolicyActivation.State


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A version, its approval, and when it is or was in force.

    `waiting`: the activation that is to come. `last`: the newest that was carried out. `until`: the
    end of the last time in force. `part`: the part of the site for which it is in force now.
    """

    version: PolicyVersion
    tried: PolicyTried = UNTRIED
    approval: PolicyApproval | None = None
    waiting: PolicyActivation | None = None
    last: PolicyActivation | None = None
    until: datetime | None = None
    part: Mapping[str, Any] | None = None

    @property
    def number(self) -> int:
        """Returns its number."""
        return self.version.number

    @property
    def state(self) -> str:
        """Returns one of `STATES`: what is in force, what is to be, and what is tried."""
        if self.version.state == PolicyVersion.State.LIVE:
            return self.version.state
        if self.part is not None:
            return PARTIAL
        if self.waiting is not None and self.waiting.due_at is not None:
            return APPROVED
        if self.tried.stage:
            return self.tried.stage
        if self.approval is not None and self.version.state == PolicyVersion.State.DRAFT:
            return APPROVED
        return self.version.state

    @property
    def waits_for(self) -> str:
        """Returns what an activation waits for: `second_operator`, `waiting_time`, `start` or nothing."""
        if self.waiting is None:
            return ""
        if self.waiting.due_at is None:
            return "second_operator"
        return "waiting_time" if self.waiting.due_at > self.waiting.starts else "start"


def versions_read(numbers: Collection[int] | None = None) -> list[VersionFacts]:
    """Returns the versions, the newest first."""
    rows = PolicyVersion.objects.select_related("created_by").order_by("-number")
    acts = PolicyActivation.objects.select_related("asked_by", "former").order_by("id")
    if numbers is not None:
        rows = rows.filter(number__in=numbers)
    tried = policies_tried()
    approvals = {each.version_id: each for each in PolicyApproval.objects.select_related("by")}
    waiting, last, until = {}, {}, {}
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    parts = {row["version"]: row for row in live.parts}
    for act in acts.filter(state__in=(State.WAITING, State.DONE)):
        if act.state == State.WAITING:
            waiting[act.version_id] = act
            continue
        last[act.version_id] = act
        if act.in_force_id is not None and act.in_force_id != act.version_id:
            # A version for a part is in force by another one.
            last[act.in_force_id] = act
        if act.former_id is not None:
            until[act.former_id] = act.ended_at
    return [
        VersionFacts(
            version=row,
            tried=tried.get(row.number, UNTRIED),
            approval=approvals.get(row.number),
            waiting=waiting.get(row.number),
            last=last.get(row.number),
            part=parts.get(row.number),
            until=until.get(row.number) if row.state == PolicyVersion.State.RETIRED else None,
        )
        for row in rows
    ]


def version_read(number: int) -> VersionFacts | None:
    """Returns a version with its state."""
    # Compared one by one, a number that no row can have finds none; in a list it is an error.
    found = list(PolicyVersion.objects.filter(number=number).values_list("number", flat=True))
    return next(iter(versions_read(found)), None)
