"""REST of the policy hook of an organisation and of the log of its calls."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from tenants.api.endpoints import Endpoint, Endpoints
from tenants.features.policy_hook.services import (
    PolicyHookTerms,
    hook_delete,
    hook_log,
    hook_one,
    hook_secret_rotate,
    hook_set,
    hook_test,
)
from tenants.models import PolicyHook, PolicyHookCall, Scope
from tenants.platform.rest.pagination import PageQuery

rest = Endpoints(Scope.ADMIN)


class PolicyHookOut(serializers.Serializer[Any]):
    """The hook without its secret."""

    id = serializers.UUIDField()
    url = serializers.CharField()
    timeout_ms = serializers.IntegerField()
    is_on = serializers.BooleanField()
    is_fail_open = serializers.BooleanField()
    is_dry_run = serializers.BooleanField()
    created = serializers.DateTimeField()
    failures = serializers.IntegerField(source="health.failures", help_text="Since the last valid answer.")
    not_asked_before = serializers.DateTimeField(
        source="health.not_before",
        allow_null=True,
        help_text="After five failures in a row it is not asked until then.",
    )
    previous_secret_until = serializers.DateTimeField(source="previous_until", allow_null=True)


class PolicyHookMade(PolicyHookOut):
    """The hook with its secret, which no other answer contains."""

    secret = serializers.CharField(
        allow_null=True,
        help_text="`whsec_…`, if it is new. Null when an Idempotency-Key is replayed.",
    )


class PolicyHookCallOut(serializers.Serializer[Any]):
    """A call. `requests` has the first 20 requests of the question."""

    id = serializers.SerializerMethodField(help_text="The header `webhook-id`.")
    at = serializers.DateTimeField()
    act = serializers.CharField(
        help_text="`booking`, `batch`, `series`, `array`, `waiting`, `change` or `test`."
    )
    asker = serializers.CharField(source="asker.username")
    items = serializers.IntegerField(help_text="Number of requests in the question.")
    requests = serializers.ListField(child=serializers.DictField())
    status = serializers.IntegerField(allow_null=True, help_text="Null without an answer.")
    answer = serializers.CharField(
        help_text="The first 2,000 bytes of the body; empty if it could not be read as decisions."
    )
    milliseconds = serializers.IntegerField()
    outcome = serializers.ChoiceField(choices=PolicyHookCall.Outcome.values)
    error = serializers.CharField(help_text="Why there was no valid answer. Empty if there was.")
    is_fail_open = serializers.BooleanField()
    is_dry_run = serializers.BooleanField()

    def get_id(self, call: PolicyHookCall) -> str:
        """Returns the public id."""
        return f"phk_{call.key.hex}"


class PolicyHookTestOut(serializers.Serializer[Any]):
    """What the hook said about a sample request."""

    call = serializers.CharField()
    error = serializers.CharField(help_text="Why the answer is not valid. Empty if it is.")


class CallQuery(PageQuery):
    """Which calls."""

    outcome = serializers.ChoiceField(choices=PolicyHookCall.Outcome.values, required=False)


def _with_secret(made: tuple[PolicyHook, str]) -> PolicyHook:
    hook, secret = made
    hook.secret = secret or None
    return hook


@rest.get("policy-hook", "The policy hook", PolicyHookOut)
def get_policy_hook(call: Endpoint) -> PolicyHook:
    """Describes the hook."""
    return hook_one(call.actor)


@rest.put("policy-hook", "Create or change the policy hook", PolicyHookMade, terms=PolicyHookTerms)
def set_policy_hook(call: Endpoint, terms: PolicyHookTerms) -> PolicyHook:
    """Creates the hook, with its secret in the answer, or changes it. It is asked about each
    new request before admission."""
    return _with_secret(hook_set(actor=call.actor, terms=terms, now=call.now))


@rest.delete("policy-hook", "Delete the policy hook and its log")
def delete_policy_hook(call: Endpoint) -> None:
    """Deletes the hook."""
    hook_delete(actor=call.actor, now=call.now)


@rest.post(
    "policy-hook/secret",
    "Make a new secret; for 24 hours questions have the signatures of both",
    PolicyHookMade,
    secret=("secret",),
)
def rotate_policy_hook_secret(call: Endpoint) -> PolicyHook:
    """Rotates the secret; the answer shows the new one once."""
    return _with_secret(hook_secret_rotate(actor=call.actor, now=call.now))


@rest.post("policy-hook/test", "Ask about a sample request", PolicyHookTestOut)
def test_policy_hook(call: Endpoint) -> dict[str, str]:
    """Asks the hook about a sample request, also while it is off. Nothing is booked."""
    answer = hook_test(actor=call.actor, now=call.now)
    return {"call": f"phk_{answer.call.hex}", "error": answer.error}


@rest.list(
    "policy-hook/calls",
    "The last 500 calls of the policy hook, the latest first",
    PolicyHookCallOut,
    order=("-id",),
    query=CallQuery,
)
def list_policy_hook_calls(call: Endpoint) -> QuerySet[PolicyHookCall]:
    """Lists questions with their answers."""
    return hook_log(hook_one(call.actor), call.query.get("outcome", ""))


urlpatterns = rest.urls
