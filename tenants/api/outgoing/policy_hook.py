"""The policy hook of an organisation and the log of its calls."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import PolicyHook, PolicyHookCall
from tenants.models.policy_hooks import TIMEOUT_LEAST_MS, TIMEOUT_MOST_MS
from tenants.platform.rest.fields import Strict, Whole
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.services.policy_hooks.settings import (
    HookTerms,
    hook_delete,
    hook_log,
    hook_one,
    hook_secret_rotate,
    hook_set,
    hook_test,
)


class PolicyHookIn(Strict):
    """Which address is asked, and what happens without a valid answer."""

    url = serializers.CharField(max_length=500, help_text="`https://…`, port 443 or 8443.")
    timeout_ms = Whole(
        required=False,
        default=1_000,
        help_text=f"Milliseconds that a call may take: {TIMEOUT_LEAST_MS} to {TIMEOUT_MOST_MS}.",
    )
    is_on = serializers.BooleanField(required=False, default=True)
    is_fail_open = serializers.BooleanField(
        required=False,
        default=False,
        help_text="True: a request without a valid answer is admitted. False: it is refused.",
    )
    is_dry_run = serializers.BooleanField(
        required=False, default=False, help_text="True: answers are logged and change nothing."
    )


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


class PolicyHookOne(ApiView):
    """The hook of the organisation."""

    @described("get_policy_hook", "The policy hook", answer=PolicyHookOut)
    def get(self, request: Request) -> Response:
        """Describes the hook."""
        with self.tx():
            return Response(PolicyHookOut(hook_one(self.actor)).data)

    @described(
        "set_policy_hook",
        "Create or change the policy hook",
        answer=PolicyHookMade,
        request=PolicyHookIn,
    )
    def put(self, request: Request) -> Response:
        """Creates the hook, with its secret in the answer, or changes it. It is asked about each
        new request before admission."""
        terms = HookTerms(**self.sent(PolicyHookIn))
        with self.tx():
            return Response(_with_secret(*hook_set(actor=self.actor, terms=terms, now=self.now)))

    @described("delete_policy_hook", "Delete the policy hook and its log", answer=None, status=204)
    def delete(self, request: Request) -> Response:
        """Deletes the hook."""
        with self.tx():
            hook_delete(actor=self.actor, now=self.now)
        return Response(status=204)


class PolicyHookSecret(ApiView):
    """The secret that signs questions."""

    @described(
        "act_rotate_policy_hook_secret",
        "Make a new secret; for 24 hours questions have the signatures of both",
        answer=PolicyHookMade,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Rotates the secret; the answer shows the new one once."""

        def work() -> Response:
            return Response(_with_secret(*hook_secret_rotate(actor=self.actor, now=self.now)))

        return self.once(work, secret=("secret",))


class PolicyHookTest(ApiView):
    """A test of the hook."""

    @described("act_test_policy_hook", "Ask about a sample request", answer=PolicyHookTestOut)
    def post(self, request: Request) -> HttpResponseBase:
        """Asks the hook about a sample request, also while it is off. Nothing is booked."""

        def work() -> Response:
            answer = hook_test(actor=self.actor, now=self.now)
            return Response({"call": f"phk_{answer.call.hex}", "error": answer.error})

        return self.once(work)


class PolicyHookCalls(ApiView):
    """The log of the hook."""

    queries = {"GET": CallQuery}

    @described(
        "list_policy_hook_calls",
        "The last 500 calls of the policy hook, the latest first",
        answer=page(PolicyHookCallOut),
        query=CallQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists questions with their answers."""
        with self.tx():
            hook = hook_one(self.actor)
            rows, next_cursor = page_of(
                hook_log(hook, self.query.get("outcome", "")),
                keys=("-id",),
                query=self.query,
                scope=f"policy_hook:{hook.id}",
            )
            return list_response(PolicyHookCallOut(rows, many=True).data, next_cursor)


def _with_secret(hook: PolicyHook, secret: str) -> dict[str, Any]:
    return {**PolicyHookOut(hook).data, "secret": secret or None}
