"""Declares operations for the OpenAPI document."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    PolymorphicProxySerializer,
    extend_schema,
    inline_serializer,
)
from rest_framework import serializers

Handler = TypeVar("Handler", bound=Callable[..., Any])
_TAKES_BODY = "takes_body"
_TAKES_DRY_RUN = "takes_dry_run"


class Problem(serializers.Serializer[Any]):
    """An error, as described by RFC 9457."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="One sentence for people.")
    code = serializers.CharField(help_text="Stable, for programs.")
    param = serializers.CharField(allow_null=True, help_text="The invalid field, as a path.")
    rule = serializers.CharField(allow_null=True, help_text="The rule of the catalogue.")
    owner = serializers.CharField(allow_null=True, help_text="Who set the rule.")
    numbers = serializers.DictField()
    frees_at = serializers.DateTimeField(allow_null=True, help_text="When the rule stops blocking.")
    alternatives = serializers.ListField(
        child=serializers.DictField(), help_text="Requests that would have worked."
    )
    ask_for_more = serializers.DictField(
        allow_null=True, help_text="What to send to /overrides to ask the limit's owner for more."
    )
    decision_id = serializers.IntegerField(allow_null=True)
    docs = serializers.CharField()


IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="1 to 255 printable ASCII characters. A repeated request with the same key does "
    "nothing and gets the stored answer with `Idempotency-Replayed: true`, for 7 days.",
)
PROBLEM = OpenApiResponse(Problem, description="Refused: see `code`.")
BUSY = OpenApiResponse(Problem, description="Busy, or being upgraded: retry after `Retry-After`.")


def one_of(name: str, *shapes: type[serializers.Serializer[Any]]) -> PolymorphicProxySerializer:
    """One of several answers, such as the object itself or what a dry run says of it."""
    return PolymorphicProxySerializer(
        component_name=name, serializers=list(shapes), resource_type_field_name=None
    )


def described(  # noqa: PLR0913 (named parts of one description)
    operation: str,
    summary: str,
    *,
    answer: Any = None,  # noqa: ANN401 (whatever the schema library accepts)
    status: int | tuple[int, str] = 200,
    request: Any = None,  # noqa: ANN401 (whatever the schema library accepts)
    query: type[serializers.Serializer[Any]] | None = None,
    headers: tuple[OpenApiParameter, ...] = (),
    public: bool = False,
    others: Mapping[int, Any] | None = None,
) -> Callable[[Handler], Handler]:
    """Declares a handler's operation; every operation may also answer with a problem.

    `create_…` and `act_…` operations accept an idempotency key. `others` are further successes by
    their status. Without `request` the view refuses a body, and without a header that names it a dry run.
    """
    parameters: list[Any] = [*([query] if query else []), *headers]
    if operation.startswith(("create", "act")) and not public:
        parameters.append(IDEMPOTENCY_KEY)
    declare = extend_schema(
        operation_id=operation.removeprefix("act_"),
        summary=summary,
        request=request,
        parameters=parameters,
        responses={
            status: answer,
            **(others or {}),
            ("4XX", "application/problem+json"): PROBLEM,
            ("503", "application/problem+json"): BUSY,
        },
        auth=[] if public else None,
    )

    def mark(handler: Handler) -> Handler:
        declared = declare(handler)
        vars(declared)[_TAKES_BODY] = request is not None
        vars(declared)[_TAKES_DRY_RUN] = any("dry-run" in str(one.description) for one in headers)
        return declared

    return mark


def takes_body(handler: object) -> bool:
    """Whether a handler's operation declares a body; True for one that declares no operation."""
    return bool(getattr(handler, _TAKES_BODY, True))


def takes_dry_run(handler: object) -> bool:
    """Whether a handler's operation declares `Prefer: dry-run`; True for one that declares no operation."""
    return bool(getattr(handler, _TAKES_DRY_RUN, True))


@cache
def page(item: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """A page of items with the next page's cursor; one for all lists of the items."""
    return inline_serializer(
        f"{item.__name__}Page",
        {
            "items": item(many=True),
            "next": serializers.CharField(
                allow_null=True, help_text="`cursor` of the next page; null on the last."
            ),
        },
    )
