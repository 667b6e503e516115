"""Files of large statements, made by a worker."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.money.bookings import FileView
from allocation.models import ReportSubscription, StatementExport
from allocation.queries.bookings.money.statement_files import month_read, project_read
from allocation.services.operate.exports import (
    KEPT,
    export_request,
    export_response,
    export_seen,
    exports_seen,
)
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.schema import described, page

AGAIN_SECONDS = 2


class ExportOut(serializers.Serializer[Any]):
    """A file of a statement: how far it is, and where it is once it is ready."""

    id = serializers.UUIDField()
    month = serializers.DateField(format="%Y-%m", help_text="`2026-11`.")
    project = serializers.CharField(
        source="project.slug", default=None, allow_null=True, help_text="Null: all projects."
    )
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
        return reverse("api-export-file", args=[row.id]) if row.state == "ready" else None


class ExportNew(Strict):
    """A month's statement, of one project or of the whole organisation (tenant admins)."""

    month = Text(max_length=7, help_text="`2026-11`.")
    project = Text(max_length=40, required=False, default="", help_text="Left out: all projects.")
    file = serializers.ChoiceField(choices=ReportSubscription.Format.values)


class Exports(ApiView):
    """The caller's files of the last day."""

    @described("list_exports", "Files of statements that you asked for", answer=page(ExportOut))
    def get(self, request: Request) -> Response:
        """Lists them, the oldest first."""
        with self.tx():
            return list_response(dict(ExportOut(row).data) for row in exports_seen(self.actor))

    @described(
        "create_export",
        "Have the file of a large statement made",
        answer=ExportOut,
        status=202,
        request=ExportNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Asks for a file. `Location` says how far it is."""
        sent = self.sent(ExportNew)

        def work() -> Response:
            slug = sent["project"]
            project = project_read(self.actor, slug) if slug else None
            row = export_request(
                actor=self.actor,
                project=project,
                month=month_read(sent["month"]).starts,
                kind=sent["file"],
                now=self.now,
            )
            return _answer(row, 202)

        return self.once(work)


class ExportOne(ApiView):
    """A file of the caller."""

    @described("get_export", "How far a file of a statement is", answer=ExportOut)
    def get(self, request: Request, export_id: UUID) -> Response:
        """Describes it, with the lines that are written."""
        with self.tx():
            return _answer(export_seen(self.actor, export_id), 200)


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


def _answer(row: StatementExport, status: int) -> Response:
    headers = {"Location": reverse("api-export", args=[row.id])}
    if row.finished_at is None:
        headers["Retry-After"] = str(AGAIN_SECONDS)
    return Response(dict(ExportOut(row).data), status=status, headers=headers)
