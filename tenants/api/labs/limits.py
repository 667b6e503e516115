"""Limits of persons, and limits at some times."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.api.cuts import (
    DRY_RUN,
    CutAnswerIn,
    CutOut,
    RemovalOut,
    cut_data,
    cut_field,
    cut_of,
    dry_or_not,
    is_dry,
)
from tenants.lab_queries import person_quotas_seen, quota_windows_seen
from tenants.models import QuotaWindow, Tenant, User
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Strict, Text, Whole
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area
from tenants.services.labs.limits import person_quota_set
from tenants.services.labs.windows import (
    WindowOf,
    WindowTerms,
    tenant_window_add,
    tenant_window_remove,
    window_add,
    window_remove,
)
from tenants.services.limit_changes import Cut
from tenants.words import refusal_text


class PersonQuotaOut(serializers.Serializer[Any]):
    """The most units of a class that a person uses at once in a project, or in the tenant."""

    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    username = serializers.CharField(
        source="user.username",
        default=None,
        allow_null=True,
        help_text="Null: everybody who has no limit of their own there.",
    )
    gpu_class = serializers.CharField(source="gpu_class_id")
    limit_units = serializers.IntegerField(allow_null=True, help_text="Null: none any more.")


class PersonQuotaSetOut(PersonQuotaOut):
    """The limit as it is set, and what of the bookings is above it."""

    cut = CutOut(allow_null=True, help_text="Null: nothing is above the limit.")


class PersonQuotaIn(Strict):
    """The limit of a person; null removes it."""

    project = Text(required=False, allow_null=True, default=None, max_length=40)
    username = Text(required=False, allow_null=True, default=None, max_length=150)
    gpu_class = Text(max_length=40)
    limit_units = Whole(max_value=10**12, allow_null=True)
    bookings = cut_field()


class QuotaWindowOut(serializers.Serializer[Any]):
    """Another limit of a project, a lab, or without them the tenant, at some times."""

    id = serializers.UUIDField()
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    lab = serializers.CharField(source="lab.slug", default=None, allow_null=True)
    username = serializers.CharField(
        source="user.username",
        default=None,
        allow_null=True,
        help_text="The person that it limits, in the project or in the whole tenant.",
    )
    gpu_class = serializers.CharField(source="gpu_class_id")
    limit_units = serializers.IntegerField(help_text="The most units at once, borrowed included.")
    first_day = serializers.DateField(allow_null=True)
    last_day = serializers.DateField(allow_null=True)
    weekdays = serializers.ListField(child=serializers.IntegerField())
    first_hour = serializers.IntegerField()
    end_hour = serializers.IntegerField()
    zone = serializers.CharField()


class QuotaWindowSetOut(QuotaWindowOut):
    """The limit as it is set, and what of the bookings is above it."""

    cut = CutOut(allow_null=True, help_text="Null: nothing is above the limit.")


class QuotaWindowIn(Strict):
    """A limit at some times of a project or lab (admins, lab leads), of a person in a project (its
    leads) or everywhere (admins), or of a `tenant` (operators).

    Where several apply at a time, the lowest counts. Guarantees stay as they are.
    """

    project = Text(required=False, max_length=40)
    lab = Text(required=False, max_length=40)
    tenant = Text(required=False, max_length=40)
    username = Text(required=False, max_length=150, help_text="A person; with a `project`, only there.")
    gpu_class = Text(max_length=40)
    limit_units = Whole(max_value=10**12)
    first_day = serializers.DateField(required=False, allow_null=True, default=None)
    last_day = serializers.DateField(required=False, allow_null=True, default=None)
    weekdays = serializers.ListField(
        child=Whole(max_value=6),
        required=False,
        default=list,
        max_length=7,
        help_text="Monday is 0; empty: every day.",
    )
    first_hour = Whole(required=False, default=0, max_value=23)
    end_hour = Whole(
        required=False,
        default=24,
        max_value=24,
        help_text="On the next day if it is not after the first hour.",
    )
    zone = Text(required=False, default="UTC", max_length=64)
    bookings = cut_field()

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Exactly one owner; that of a person's limit can be left out. Raises ValidationError."""
        named = {"project", "lab", "tenant"} & set(given)
        if "username" in given and named <= {"project"}:
            return given
        if len(named) != 1 or "username" in given:
            raise serializers.ValidationError(
                {"project": [refusal_text("window_owner")]},
                code="missing_field",
            )
        return given


class PersonQuotas(ApiView):
    """Limits of persons that the caller can see."""

    @described("list_person_quotas", "Limits of persons", answer=page(PersonQuotaOut))
    def get(self, request: Request) -> Response:
        """Lists the caller's limits, and those of the projects that they lead; all for admins."""
        with self.tx():
            rows = person_quotas_seen(self.actor)
            return list_response(PersonQuotaOut(rows, many=True).data)

    @described(
        "set_person_quota",
        "Set or remove the limit of a person (leads, admins)",
        answer=PersonQuotaSetOut,
        request=PersonQuotaIn,
        headers=(DRY_RUN,),
    )
    def put(self, request: Request) -> Response:
        """Sets the limit; the answer is the limit as it is now, and what is above it."""
        sent = self.sent(PersonQuotaIn)
        cut = cut_of(sent.pop("bookings", None))

        def work() -> Response:
            quota = person_quota_set(actor=self.actor, **sent, now=self.now, cut=cut)
            if quota is None:
                names = {name: sent[name] for name in ("project", "username", "gpu_class")}
                return Response({**names, "limit_units": None, "cut": None})
            return Response({**PersonQuotaOut(quota).data, "cut": cut_data(cut)})

        with self.tx():
            return dry_or_not(request, work)


class QuotaWindows(ApiView):
    """Limits at some times that the caller can see."""

    area = Area.RULES

    @described("list_quota_windows", "Limits at some times", answer=page(QuotaWindowOut))
    def get(self, request: Request) -> Response:
        """Lists those of the tenant, of the caller's projects and their labs; all for admins."""
        with self.tx():
            rows = quota_windows_seen(self.actor)
            return list_response(QuotaWindowOut(rows, many=True).data)

    @described(
        "add_quota_window",
        "Add a limit at some times (tenant admins, lab leads; of a tenant: operators)",
        answer=QuotaWindowSetOut,
        status=201,
        request=QuotaWindowIn,
        headers=(DRY_RUN,),
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Adds the limit. `cut` of the answer has what is above it; `Prefer: dry-run` only says it."""
        sent = self.sent(QuotaWindowIn)
        owner = {name: sent.pop(name, None) for name in ("project", "lab", "tenant", "username")}
        gpu_class, cut = sent.pop("gpu_class"), cut_of(sent.pop("bookings", None))
        terms = WindowTerms(**sent)

        def work() -> Response:
            if owner["tenant"] is not None:
                return self._tenant(owner["tenant"], gpu_class, terms, cut)
            row = window_add(
                actor=self.actor,
                of=WindowOf(owner["project"], owner["lab"], owner["username"]),
                gpu_class=gpu_class,
                terms=terms,
                now=self.now,
                cut=cut,
            )
            return _window_shown(row, cut)

        if is_dry(request):
            with self.tx():
                return dry_or_not(request, work)
        return self.once(work)

    def _tenant(self, slug: str, gpu_class: str, terms: WindowTerms, cut: Cut) -> Response:
        self.require_operator()
        with operator_tx():
            tenant = Tenant.objects.filter(slug=slug).first()
            if tenant is None:
                raise missing("tenant", "tenant")
            row = tenant_window_add(
                operator=User.objects.get(id=self.actor.user_id),
                tenant=tenant,
                gpu_class=gpu_class,
                terms=terms,
                now=self.now,
                cut=cut,
            )
            return _window_shown(row, cut)


def _window_shown(row: QuotaWindow, cut: Cut) -> Response:
    return Response({**QuotaWindowOut(row).data, "cut": cut_data(cut)}, status=201)


class QuotaWindowOne(ApiView):
    """One limit at some times."""

    area = Area.RULES
    queries: ClassVar[Mapping[str, type[Strict]]] = {"DELETE": CutAnswerIn}

    @described(
        "remove_quota_window",
        "Remove a limit at some times",
        status=204,
        query=CutAnswerIn,
        headers=(DRY_RUN,),
        others={200: RemovalOut},
    )
    def delete(self, request: Request, window_id: UUID) -> Response:
        """Removes the limit; that of a tenant only for operators. `bookings` says what happens to those
        above the usual limit, if that is lower; `Prefer: dry-run` answers 200 with what is above it."""
        with self.tx():
            row = quota_windows_seen(self.actor).filter(id=window_id).first()
            if row is None:
                raise missing("limit")
            if not row.is_of_tenant:
                return self._removed(request, partial(window_remove, actor=self.actor, window_id=window_id))
        self.require_operator()
        with operator_tx():
            operator = User.objects.get(id=self.actor.user_id)
            remove = partial(tenant_window_remove, operator=operator, window_id=window_id)
            return self._removed(request, remove)

    def _removed(self, request: Request, remove: Callable[..., None]) -> Response:
        cut = cut_of(self.query.get("bookings"))

        def work() -> Response:
            remove(now=self.now, cut=cut)
            return Response({"cut": cut_data(cut)}) if is_dry(request) else Response(status=204)

        return dry_or_not(request, work)
