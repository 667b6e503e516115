"""The setup steps of a new tenant's admin."""

from dataclasses import dataclass, replace
from datetime import datetime

from allocation.queries.fleet.tenant_setup import TenantSetup, tenant_setup_of
from tenants.access import Actor


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the page. Without an `href` someone else has to take it."""

    title: str
    text: str
    href: str
    action: str
    is_done: bool
    is_next: bool = False


def first_steps(actor: Actor, now: datetime) -> tuple[Step, ...]:
    """Returns the steps with the next one marked; none after the tenant's first booking."""
    setup = tenant_setup_of(actor.tenant_id, actor.user_id, now)
    if setup is None:
        return ()
    steps = _steps(setup, f"/t/{actor.tenant_slug}/")
    following = next((each for each in steps if not each.is_done and each.href), None)
    return tuple(replace(each, is_next=each is following) for each in steps)


def _steps(setup: TenantSetup, base: str) -> list[Step]:
    return [
        Step(
            "Create a project",
            "A team with its own bookings and budget.",
            f"{base}people#new-project",
            "Create a project",
            setup.has_project,
        ),
        _quota(base, is_given=setup.is_given_quota),
        Step(
            "Set a budget",
            "A spending limit for a project, for a month or longer.",
            f"{base}budgets",
            "Set a budget",
            setup.has_budget,
        ),
        Step(
            "Invite people",
            "By e-mail address or sign-in name. They join when they accept.",
            f"{base}people",
            "Invite people",
            setup.has_people,
        ),
        Step(
            "Book GPUs",
            "Type a request such as 2 h100 6h. You see start and price before you book.",
            f"{base}book",
            "Book GPUs",
            is_done=False,
        ),
    ]


def _quota(base: str, *, is_given: bool) -> Step:
    if is_given:
        text = "You have GPUs. All projects share them until you split the quota."
        return Step("Set quotas", text, f"{base}quotas", "Split the quota", is_done=True)
    text = "Your organisation has no GPU quota yet. Ask the platform operator for one."
    return Step("Set quotas", text, "", "", is_done=False)
