"""The policy's versions: read, draft, compare, activate (operators)."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import PolicyVersion
from allocation.services.policy.policies import (
    policy_activate,
    policy_check,
    policy_differences,
    policy_draft,
    policy_values,
    policy_version,
)
from tenants.api.base import list_response
from tenants.platform.costly import costly
from tenants.platform.rest.fields import Strict
from tenants.platform.rest.schema import described, page


class PolicyIn(Strict):
    """The parameters of a new version; those left out have their defaults."""

    document = serializers.DictField(help_text='`{"grid": 600, "victim_rules": ["taken_back"]}`')


class PolicyVersionOut(serializers.Serializer[Any]):
    """A version of the policy."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=PolicyVersion.State.values)
    created = serializers.DateTimeField()
    created_by = serializers.CharField(
        source="created_by.username", default=None, allow_null=True, help_text="An operator."
    )
    document = serializers.DictField(help_text="The values that differ from the defaults.")


class PolicyOut(PolicyVersionOut):
    """The live version with all values."""

    values: Any = serializers.SerializerMethodField()

    def get_values(self, version: PolicyVersion) -> dict[str, Any]:
        """Every parameter with its value, including defaults."""
        return policy_values(version.document)


@costly("preview", "GET", "HEAD", "POST")
class PolicyPreviewOut(serializers.Serializer[Any]):
    """What a version would change."""

    before = serializers.DictField(help_text="Values of the live version that it would change.")
    after = serializers.DictField()
    moved = serializers.IntegerField(
        help_text="Waiting and planned bookings that would start at another time, decided now."
    )


class Policy(OperatorView):
    """The live policy."""

    @described("get_policy", "Retrieve the live policy (operators)", answer=PolicyOut)
    def get(self, request: Request) -> Response:
        """Returns the live version with the value of every parameter."""
        with self.operator_tx():
            live = PolicyVersion.objects.select_related("created_by").get(state=PolicyVersion.State.LIVE)
            return Response(PolicyOut(live).data)


class PolicyVersions(OperatorView):
    """All versions."""

    @described(
        "list_policy_versions",
        "List the policy's versions (operators)",
        answer=page(PolicyVersionOut),
    )
    def get(self, request: Request) -> Response:
        """Returns all versions, the newest first."""
        with self.operator_tx():
            rows = PolicyVersion.objects.select_related("created_by").order_by("-number")
            return list_response(PolicyVersionOut(rows, many=True).data)

    @described(
        "create_policy_draft",
        "Create a draft of the policy (operators)",
        answer=PolicyVersionOut,
        request=PolicyIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Stores a draft, which decides nothing, and returns it. `bad_policy` names the value that
        is not allowed."""
        sent = self.sent(PolicyIn)
        return self.operate(
            lambda: policy_draft(document=sent["document"], now=self.now, created_by_id=self.user.id),
            PolicyVersionOut,
            status=201,
        )


class PolicyVersionOne(OperatorView):
    """One version."""

    @described("get_policy_version", "Retrieve a policy version (operators)", answer=PolicyVersionOut)
    def get(self, request: Request, number: int) -> Response:
        """Returns a version."""
        with self.operator_tx():
            return Response(PolicyVersionOut(policy_version(number)).data)


class PolicyPreview(OperatorView):
    """What a version would change."""

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


class PolicyActivate(OperatorView):
    """Makes a version the live one."""

    @described(
        "act_activate_policy",
        "Activate a policy version (operators)",
        answer=PolicyVersionOut,
        status=201,
    )
    def post(self, request: Request, number: int) -> HttpResponseBase:
        """Publishes the values of a draft, or of an earlier version to go back to it, as a new
        version and returns that. It applies from the next decision."""
        return self.operate(
            lambda: policy_activate(number=number, now=self.now, created_by_id=self.user.id),
            PolicyVersionOut,
            status=201,
        )
