"""The policy's versions: read, draft, preview (operators)."""

from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import PolicyActivation, PolicyVersion
from allocation.queries.decisions.policy_versions import (
    STATES,
    VersionFacts,
    version_read,
    versions_read,
)
from allocation.services.policy.parts import part_shown
from allocation.services.policy.policies import (
    policy_check,
    policy_differences,
    policy_draft,
    policy_values,
    policy_version,
)
from tenants.api.base import list_response
from tenants.platform.costly import costly
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Strict
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


def version_facts(number: int) -> VersionFacts:
    """Returns a version with its state. Raises Refused `not_found`."""
    found = version_read(number)
    if found is None:
        raise missing("policy version")
    return found


class PolicyIn(Strict):
    """The parameters of a new version; those left out have their defaults."""

    document = serializers.DictField(help_text='`{"grid": 600, "victim_rules": ["taken_back"]}`')
    scenario = serializers.DictField(
        required=False,
        help_text='What else it sets: `{"tiers": {"spot": {"grace_seconds": 300}}, "quotas": [{"tenant":'
        ' "acme", "gpu_class": "h100", "guaranteed_units": 448000, "borrow_limit_units": null,'
        ' "lend_limit_units": null, "weight": 2, "cap_gpu_hours": 5000, "cap_days": 7}], "prices":'
        ' [{"gpu_class": "h100", "tier": "spot", "per_gpu_hour": "1.50", "peak_per_gpu_hour": "2.50"}],'
        ' "peak_hours": {"hours": "Mon-Fri 8-20", "zone": "Europe/Berlin"}}`. A quota with a `project` is'
        " that project's. What is left out stays as it is; what is unknown is refused.",
    )


class PolicyWaitingOut(serializers.Serializer[Any]):
    """A version that is to go into force."""

    starts = serializers.DateTimeField(help_text="The time that was asked for.")
    due_at = serializers.DateTimeField(
        allow_null=True, help_text="When it goes into force. Null: another operator approves it first."
    )
    asked_at = serializers.DateTimeField()
    asked_by = serializers.CharField(source="asked_by.username", default=None, allow_null=True)
    reason = serializers.CharField()
    waiver = serializers.CharField(help_text="Why a site's only operator does not wait for a day.")
    guard = serializers.DictField(help_text="As it was sent, with what its trial forecast; empty: none.")
    classes = serializers.ListField(child=serializers.CharField(), help_text="Empty: for all.")
    tenants: Any = serializers.SerializerMethodField(help_text="Empty: for all.")

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_tenants(self, act: PolicyActivation) -> list[str]:
        """Returns the slugs of the organisations."""
        found: list[str] = part_shown({"tenants": act.tenants})["tenants"]
        return found


class PolicyPartOut(serializers.Serializer[Any]):
    """A part of the site in which another version is in force."""

    version = serializers.IntegerField()
    classes = serializers.ListField(child=serializers.CharField(), help_text="Empty: all.")
    tenants = serializers.ListField(child=serializers.CharField(), help_text="Empty: all.")
    values = serializers.DictField(help_text="What it has otherwise there.")


class PolicyVersionOut(serializers.Serializer[Any]):
    """A version of the policy."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(
        choices=STATES,
        help_text="`shadow` and `trial`: what is tried with it. `approved`: by a second operator, or sure"
        " to go into force. `partial`: in force for a part of the site. `live`: in force. `retired`: it"
        " was, and another version superseded it.",
    )
    created = serializers.DateTimeField(source="version.created")
    created_by = serializers.CharField(
        source="version.created_by.username", default=None, allow_null=True, help_text="An operator."
    )
    document = serializers.DictField(
        source="version.document", help_text="The values that differ from the defaults."
    )
    scenario = serializers.DictField(source="version.scenario", help_text="What else it sets.")
    approved_by = serializers.CharField(source="approval.by.username", default=None, allow_null=True)
    active_from = serializers.DateTimeField(
        source="last.ended_at", default=None, allow_null=True, help_text="When it went into force last."
    )
    active_until = serializers.DateTimeField(source="until", allow_null=True)
    activation = PolicyWaitingOut(
        source="waiting", allow_null=True, help_text="Null: it does not wait to go into force."
    )
    guard = serializers.DictField(
        source="last.guard", default=dict, help_text="That of the last activation; empty: none."
    )
    parts: Any = serializers.SerializerMethodField(
        help_text="Where other versions are in force, while this one is: made by activating one of them for"
        " GPU classes or organisations."
    )
    part: Any = serializers.SerializerMethodField(
        help_text="Where it is in force now, if it is for a part of the site. Null: nowhere, or everywhere."
    )
    waits_for = serializers.ChoiceField(
        choices=("", "second_operator", "waiting_time", "start"), help_text="What its activation waits for."
    )

    @extend_schema_field(PolicyPartOut(many=True))
    def get_parts(self, facts: VersionFacts) -> list[dict[str, Any]]:
        """Returns the parts, with the slugs of organisations."""
        return [part_shown(row) for row in facts.version.parts]

    @extend_schema_field(PolicyPartOut(allow_null=True))
    def get_part(self, facts: VersionFacts) -> dict[str, Any] | None:
        """Returns the part of the version in force that is this version."""
        return None if facts.part is None else part_shown(facts.part)


class PolicyOut(PolicyVersionOut):
    """The live version with all values."""

    values: Any = serializers.SerializerMethodField()

    def get_values(self, facts: VersionFacts) -> dict[str, Any]:
        """Every parameter with its value, including defaults."""
        return policy_values(facts.version.document)


class PolicyPreviewOut(serializers.Serializer[Any]):
    """What a version would change."""

    before = serializers.DictField(help_text="Values of the live version that it would change.")
    after = serializers.DictField()
    moved = serializers.IntegerField(
        help_text="Waiting and planned bookings that would start at another time, decided now."
    )


class Policy(OperatorView):
    """The live policy."""

    area = Area.RULES

    @described("get_policy", "Retrieve the live policy (operators)", answer=PolicyOut)
    def get(self, request: Request) -> Response:
        """Returns the live version with the value of every parameter."""
        with self.operator_tx():
            live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
            return Response(PolicyOut(version_facts(live.number)).data)


class PolicyVersions(OperatorView):
    """All versions."""

    area = Area.RULES

    @described(
        "list_policy_versions",
        "List the policy's versions (operators)",
        answer=page(PolicyVersionOut),
    )
    def get(self, request: Request) -> Response:
        """Returns all versions, the newest first."""
        with self.operator_tx():
            return list_response(PolicyVersionOut(versions_read(), many=True).data)

    @described(
        "create_policy_draft",
        "Create a draft of the policy (operators)",
        answer=PolicyVersionOut,
        request=PolicyIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Stores a draft, which decides nothing, and returns it. `bad_policy` names the value that
        is not allowed, `bad_scenario` the tier, quota or price."""
        sent = self.sent(PolicyIn)

        def draft() -> VersionFacts:
            made = policy_draft(
                document=sent["document"],
                now=self.now,
                created_by_id=self.user.id,
                scenario=sent.get("scenario"),
            )
            return version_facts(made.number)

        return self.operate(draft, PolicyVersionOut, status=201)


class PolicyVersionOne(OperatorView):
    """One version."""

    area = Area.RULES

    @described("get_policy_version", "Retrieve a policy version (operators)", answer=PolicyVersionOut)
    def get(self, request: Request, number: int) -> Response:
        """Returns a version."""
        with self.operator_tx():
            return Response(PolicyVersionOut(version_facts(number)).data)


@costly("preview", "GET", "HEAD", "POST")
class PolicyPreview(OperatorView):
    """What a version would change."""

    area = Area.RULES

    @described("get_policy_preview", "Preview a policy version (operators)", answer=PolicyPreviewOut)
    def get(self, request: Request, number: int) -> Response:
        """Decides the present site by this version and by the live one, and compares the starts.
        Writes nothing."""
        with self.operator_tx():
            version = policy_version(number)
            live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
            changes = policy_differences(live, version)
            moved = policy_check(version.document, self.now)
            return Response(PolicyPreviewOut({**changes, "moved": moved}).data)
