"""REST of the policy lab (operators)."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from allocation.api.fleet.policy import PolicyVersionOut
from allocation.features.policy_lab.models import PolicyShadow, PolicyShadowDifference, PolicyTrial
from allocation.features.policy_lab.shadows import (
    ShadowTerms,
    differences_of,
    shadow_begin,
    shadow_end,
    shadow_one,
    sums_by_tenant,
)
from allocation.features.policy_lab.trials import TrialTerms, trial_ask, trial_cancel, trial_one
from allocation.features.policy_lab.versions import (
    ActivateTerms,
    RollbackTerms,
    version_activate,
    version_approve,
    version_rollback,
    version_withdraw,
)
from allocation.queries.decisions.policy_versions import VersionFacts
from allocation.services.policy.differences import version_lines
from allocation.services.policy.policies import policy_differences, policy_version
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.rules.operator_roles import Area

DIFFERENCES = 200
rest = Endpoints(Scope.ADMIN, for_operators=True, area=Area.RULES)


class PolicyDifferenceOut(serializers.Serializer[Any]):
    """What differs between two versions."""

    version = serializers.IntegerField()
    against = serializers.IntegerField()
    words = serializers.ListField(
        child=serializers.CharField(), help_text="Such as `Waiting-time step: 6h to 12h`; from `against` on."
    )
    before = serializers.DictField(help_text="The values of `against` that differ.")
    after = serializers.DictField()


@rest.get(
    "policy/versions/<int:number>/difference/<int:against>",
    "Compare two versions of the policy (operators)",
    PolicyDifferenceOut,
)
def get_policy_difference(call: ApiView, number: int, against: int) -> dict[str, Any]:
    """Returns what changes from the version `against` to the version `number`."""
    before, after = policy_version(against), policy_version(number)
    changes = policy_differences(before, after)
    words = version_lines(before, after)
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
    not. To activate another operator's version approves it. With `classes` or `tenants` it is in force for
    these only, by a version that is made for it; `not_for_a_part` names what has one value for the whole
    site. Activate it again with a wider list, or without one for all."""
    return version_activate(actor=PlatformActor.of(call.user), number=number, terms=terms, now=call.now)


@rest.post("policy/versions/<int:number>/approve", "Approve a policy version (operators)", PolicyVersionOut)
def approve_policy_version(call: ApiView, number: int) -> VersionFacts:
    """Approves a version that another operator wrote. If it waits to go into force, it does at its
    time."""
    return version_approve(actor=PlatformActor.of(call.user), number=number, now=call.now)


@rest.post(
    "policy/versions/<int:number>/withdraw", "Withdraw a waiting policy version (operators)", PolicyVersionOut
)
def withdraw_policy_version(call: ApiView, number: int) -> VersionFacts:
    """Withdraws a version that waits to go into force."""
    return version_withdraw(actor=PlatformActor.of(call.user), number=number, now=call.now)


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
    return version_rollback(actor=PlatformActor.of(call.user), terms=terms, now=call.now)


class TrialOut(serializers.Serializer[Any]):
    """A trial of a candidate on the site's past."""

    id = serializers.UUIDField()
    status_url = serializers.SerializerMethodField(help_text="Ask here until `finished_at` is set.")
    candidate = serializers.IntegerField(source="candidate_id")
    against = serializers.IntegerField(source="against_id", help_text="The version that was in force.")
    days = serializers.IntegerField()
    seeds = serializers.IntegerField()
    demand = serializers.DictField(
        help_text="`load`, `sizes` and `bursts` in percent; empty: the demand of the past."
    )
    fleet = serializers.DictField(
        help_text="`gpu_class`, `gpus`, `from_hour` and `to_hour` that only the candidate has; empty: none."
    )
    until = serializers.DateTimeField(help_text="The end of the past that is played.")
    state = serializers.ChoiceField(choices=PolicyTrial.State.values)
    progress = serializers.IntegerField(source="permille", help_text="In thousandths.")
    asked_at = serializers.DateTimeField()
    asked_by = serializers.CharField(source="asked_by.username", default=None, allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    took_ms = serializers.IntegerField(help_text="Time of the processor.")
    note = serializers.CharField(help_text="Why it failed.")

    def get_status_url(self, trial: PolicyTrial) -> str:
        """Returns the address of the trial."""
        return f"/api/v1/policy/trials/{trial.pk}"


class TrialReportOut(TrialOut):
    """A trial with its results."""

    report = serializers.DictField(
        allow_null=True,
        help_text="`totals`, `tiers`, `tenants` and `projects` under the `active` version and the"
        " `candidate`; waits in seconds, with `change`, its interval (`low`, `high`) and its `effect`."
        " `money` is in millionths. `longer` and `shorter` are examples of bookings. Null: not done.",
    )


@rest.post(
    "policy/trials",
    "Try a policy version on the past (operators)",
    TrialOut,
    terms=TrialTerms,
    status=202,
    operation="create_policy_trial",
)
def create_policy_trial(call: ApiView, terms: TrialTerms) -> PolicyTrial:
    """Plays the site's past under the version in force and under the candidate, by the same solver, in
    the background. Requests come when they came, runs last as long as they lasted; lengths that nobody
    knows are drawn, once for each seed. With a `demand` there is more work, larger work, or more of it at
    once, drawn from the site's own. With a `fleet` the candidate, which may be the version in force, has more
    GPUs, always or in hours of the day; organisations then read their part of the results."""
    return trial_ask(terms=terms, operator_id=call.user.pk, now=call.now)


@rest.list("policy/trials", "List trials of the policy (operators)", TrialOut, order=("-asked_at", "-id"))
def list_policy_trials(call: ApiView) -> QuerySet[PolicyTrial]:
    """Returns all trials, the newest first, without their results."""
    return PolicyTrial.objects.select_related("asked_by").defer("report")


@rest.get("policy/trials/<uuid:trial_id>", "Retrieve a trial with its results (operators)", TrialReportOut)
def get_policy_trial(call: ApiView, trial_id: UUID) -> PolicyTrial:
    """Returns how far it is, and its results when it is done."""
    return trial_one(trial_id)


@rest.post("policy/trials/<uuid:trial_id>/cancel", "Cancel a trial (operators)", TrialOut)
def cancel_policy_trial(call: ApiView, trial_id: UUID) -> PolicyTrial:
    """Cancels a trial that waits or runs."""
    return trial_cancel(trial_id=trial_id, operator_id=call.user.pk, now=call.now)


class ShadowSumOut(serializers.Serializer[Any]):
    """Bookings of an organisation that the candidate treats otherwise."""

    tenant = serializers.CharField()
    earlier = serializers.IntegerField()
    later = serializers.IntegerField()
    paused = serializers.IntegerField(help_text="That the live version does not pause.")
    spared = serializers.IntegerField(help_text="That the live version pauses.")
    refused = serializers.IntegerField()
    taken = serializers.IntegerField(help_text="That the live version refuses.")


class ShadowDifferenceOut(serializers.Serializer[Any]):
    """A booking that the candidate treats otherwise, as of the last decision in which it did."""

    booking = serializers.CharField(source="booking.label")
    booking_id = serializers.UUIDField()
    tenant = serializers.CharField(source="booking.tenant.slug")
    project = serializers.CharField(source="booking.project.slug")
    kind = serializers.ChoiceField(choices=PolicyShadowDifference.Kind.values)
    times = serializers.IntegerField(help_text="Decisions in which it did.")
    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    decision = serializers.IntegerField()
    active_starts = serializers.DateTimeField(allow_null=True)
    starts = serializers.DateTimeField(allow_null=True)
    rule = serializers.CharField(help_text="The code of the candidate's reason.")


class ShadowOut(serializers.Serializer[Any]):
    """A candidate in shadow: what it would have decided otherwise."""

    version = serializers.IntegerField(source="version_id")
    every = serializers.IntegerField()
    started_at = serializers.DateTimeField()
    started_by = serializers.CharField(source="started_by.username", default=None, allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    decided = serializers.IntegerField(help_text="Decisions that it decided again.")
    differing = serializers.IntegerField(help_text="Those in which something differs.")
    failed = serializers.IntegerField()
    note = serializers.CharField(help_text="Why the last one failed.")
    took_ms = serializers.IntegerField(help_text="Time of the processor, a fifth of a core at most.")
    tenants: Any = serializers.SerializerMethodField()
    differences: Any = serializers.SerializerMethodField(help_text="The newest 200.")

    @extend_schema_field(ShadowSumOut(many=True))
    def get_tenants(self, shadow: PolicyShadow) -> Any:  # noqa: ANN401 (rows of a serializer)
        """Returns the sums by organisation."""
        return ShadowSumOut(sums_by_tenant(shadow), many=True).data

    @extend_schema_field(ShadowDifferenceOut(many=True))
    def get_differences(self, shadow: PolicyShadow) -> Any:  # noqa: ANN401 (rows of a serializer)
        """Returns the bookings."""
        return ShadowDifferenceOut(differences_of(shadow)[:DIFFERENCES], many=True).data


@rest.post(
    "policy/versions/<int:number>/shadow",
    "Put a policy version in shadow (operators)",
    ShadowOut,
    terms=ShadowTerms,
    status=201,
    operation="begin_policy_shadow",
)
def begin_policy_shadow(call: ApiView, terms: ShadowTerms, number: int) -> PolicyShadow:
    """From now on a worker decides each n-th decision again by this version, from the stored input, and
    keeps what differs. It acts on nothing, and people see nothing of it."""
    return shadow_begin(number=number, terms=terms, operator_id=call.user.pk, now=call.now)


@rest.get("policy/versions/<int:number>/shadow", "Retrieve a version's shadow (operators)", ShadowOut)
def get_policy_shadow(call: ApiView, number: int) -> PolicyShadow:
    """Returns what the version decides otherwise, in its newest shadow."""
    return shadow_one(number)


@rest.post(
    "policy/versions/<int:number>/shadow/end", "Take a policy version out of shadow (operators)", ShadowOut
)
def end_policy_shadow(call: ApiView, number: int) -> PolicyShadow:
    """Ends it. What it found stays."""
    return shadow_end(number=number, operator_id=call.user.pk, now=call.now)


urlpatterns = rest.urls
