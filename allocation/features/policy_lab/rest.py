"""REST of the policy lab (operators)."""

from typing import Any

from rest_framework import serializers

from allocation.api.fleet.policy import PolicyVersionOut
from allocation.features.policy_lab.versions import (
    ActivateTerms,
    RollbackTerms,
    version_activate,
    version_approve,
    version_rollback,
    version_withdraw,
)
from allocation.queries.decisions.policy_versions import VersionFacts
from allocation.services.policy.differences import difference_lines
from allocation.services.policy.policies import policy_differences, policy_version
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope

rest = Endpoints(Scope.ADMIN, for_operators=True)


class PolicyDifferenceOut(serializers.Serializer[Any]):
    """What differs between two versions."""

    version = serializers.IntegerField()
    against = serializers.IntegerField()
    words = serializers.ListField(
        child=serializers.CharField(), help_text="Such as `Waiting-time step: 6h to 12h`; from `against` on."
    )
    before = serializers.DictField(help_text="The values of `against` that differ.")
    after = serializers.DictField()


def actor_of(call: ApiView) -> PlatformActor:
    """Returns the operator who calls."""
    return PlatformActor(call.user.pk, call.user.display_name)


@rest.get(
    "policy/versions/<int:number>/difference/<int:against>",
    "Compare two versions of the policy (operators)",
    PolicyDifferenceOut,
)
def get_policy_difference(call: ApiView, number: int, against: int) -> dict[str, Any]:
    """Returns what changes from the version `against` to the version `number`."""
    before, after = policy_version(against), policy_version(number)
    changes = policy_differences(before, after)
    words = difference_lines(before.document, after.document)
    return {"version": number, "against": against, "words": words, **changes}


@rest.post(
    "policy/versions/<int:number>/activate",
    "Activate a policy version (operators)",
    PolicyVersionOut,
    terms=ActivateTerms,
    status=201,
    operation="activate_policy",
)
def activate_policy_version(call: ApiView, terms: ActivateTerms, number: int) -> VersionFacts:
    """Puts a draft, or an earlier version again, into force: at once, or from `starts` on, with the
    first decision after it. The author's own version waits for another operator's approval
    (`waits_for` is `second_operator`); a site's only operator waits for a day, or says in `waiver` why
    not. To activate another operator's version approves it."""
    return version_activate(actor=actor_of(call), number=number, terms=terms, now=call.now)


@rest.post("policy/versions/<int:number>/approve", "Approve a policy version (operators)", PolicyVersionOut)
def approve_policy_version(call: ApiView, number: int) -> VersionFacts:
    """Approves a version that another operator wrote. If it waits to go into force, it does at its
    time."""
    return version_approve(actor=actor_of(call), number=number, now=call.now)


@rest.post(
    "policy/versions/<int:number>/withdraw", "Withdraw a waiting policy version (operators)", PolicyVersionOut
)
def withdraw_policy_version(call: ApiView, number: int) -> VersionFacts:
    """Withdraws a version that waits to go into force."""
    return version_withdraw(actor=actor_of(call), number=number, now=call.now)


@rest.post(
    "policy/rollback",
    "Go back to an earlier policy version (operators)",
    PolicyVersionOut,
    terms=RollbackTerms,
    status=201,
)
def rollback_policy(call: ApiView, terms: RollbackTerms) -> VersionFacts:
    """Puts the version that was in force before, or an earlier one, into force again at once. The log
    keeps the reason; no approval is needed."""
    return version_rollback(actor=actor_of(call), terms=terms, now=call.now)


urlpatterns = rest.urls
