"""REST of files of large statements, made by a worker."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.urls import path, reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request

from allocation.api.money.bookings import FileView
from allocation.features.exports.models import StatementExport
from allocation.features.exports.services import (
    KEPT,
    ExportTerms,
    export_request,
    export_response,
    export_seen,
    exports_seen,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.api.project_tokens import IN_PROJECT
from tenants.models import Scope
from tenants.platform.rest.schema import described
from tenants.platform.rest.terms import Slug

AGAIN_SECONDS = 2
FILE = "api-export-file"
rest = Endpoints(Scope.READ, in_project=True)


class ExportOut(serializers.Serializer[Any]):
    """A file of a statement: how far it is, and where it is once it is ready."""

    id = serializers.UUIDField()
    month = serializers.DateField(format="%Y-%m", help_text="`2026-11`.")
    project = Slug(help_text="Null: all projects.")
    file = serializers.CharField(source="kind")
    state = serializers.ChoiceField(choices=["waiting", "making", "ready", "failed"])
    lines = serializers.IntegerField(help_text="Lines of the statement.")
    lines_done = serializers.IntegerField(help_text="Lines that are written.")
    percent = serializers.IntegerField()
    created = serializers.DateTimeField()
    expires = serializers.SerializerMethodField(help_text="When the file is removed.")
    url = serializers.SerializerMethodField(help_text="The file, once `state` is `ready`.")

    def get_expires(self, row: StatementExport) -> str:
        """A day after the request."""
        return (row.created + KEPT).isoformat()

    def get_url(self, row: StatementExport) -> str | None:
        """The address of the file."""
        return reverse(FILE, args=[row.id]) if row.state == "ready" else None


def _heads(row: StatementExport) -> dict[str, str]:
    again = {"Retry-After": str(AGAIN_SECONDS)} if row.finished_at is None else {}
    return {"Location": reverse("api-export", args=[row.id])} | again


@rest.list("exports", "Files of statements that you asked for", ExportOut)
def list_exports(call: ApiView) -> QuerySet[StatementExport]:
    """Lists them, the oldest first."""
    return exports_seen(call.actor)


@rest.post(
    "exports",
    "Have the file of a large statement made",
    ExportOut,
    terms=ExportTerms,
    status=202,
    heads=_heads,
)
def create_export(call: ApiView, terms: ExportTerms) -> StatementExport:
    """Asks for a file. `Location` says how far it is."""
    return export_request(actor=call.actor, terms=terms, now=call.now)


@rest.get("exports/<uuid:export_id>", "How far a file of a statement is", ExportOut, heads=_heads)
def get_export(call: ApiView, export_id: UUID) -> StatementExport:
    """Describes it, with the lines that are written."""
    return export_seen(call.actor, export_id)


class ExportFile(FileView):
    """The file itself."""

    queries = {}

    @described(
        "get_export_file",
        "A file of a statement that is ready",
        answer=OpenApiTypes.BINARY,
        status=(200, "application/octet-stream"),
    )
    def get(self, request: Request, export_id: UUID) -> HttpResponseBase:
        """Returns the file; 409 `not_ready` before."""
        with self.tx():
            return export_response(export_seen(self.actor, export_id))


IN_PROJECT.add(FILE)
urlpatterns = [*rest.urls, path("exports/<uuid:export_id>/file", ExportFile.as_view(), name=FILE)]
