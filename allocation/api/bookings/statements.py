"""Statements: what was charged in a month, with its sums and files."""

from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.queries.bookings.statement_files import (
    FILES,
    month_read,
    project_read,
    statement_file_make,
)
from allocation.queries.bookings.statements import (
    GROUPS,
    StatementOf,
    group_check,
    statement_of,
)
from tenants.api.base import ApiView
from tenants.models import Tenant
from tenants.platform.fields import Money, Strict, Text
from tenants.platform.schema import described

GROUPING = ", ".join(f"`{each}`" for each in GROUPS) + ", or `label:` and a key: `label:team`."


class SumOut(serializers.Serializer[Any]):
    """The sum of a group's lines."""

    name = serializers.CharField(help_text="Empty for lines without a campaign.")
    lines = serializers.IntegerField()
    amount = Money(max_digits=20, decimal_places=2, min_value=None)


class StatementOut(serializers.Serializer[Any]):
    """A statement: `amount` is the sum of its lines, each rounded half-even to cents."""

    month = serializers.CharField(help_text="`2026-11`, in UTC.")
    project = serializers.CharField(allow_null=True, help_text="Null: all projects.")
    closed_at = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField()
    lines = serializers.IntegerField()
    amount = Money(max_digits=20, decimal_places=2, min_value=None)
    exact = Money(max_digits=20, min_value=None, help_text="Without rounding of the lines.")
    by = serializers.CharField(help_text=GROUPING)
    sums = SumOut(many=True)


class FileQuery(Strict):
    """A month, of one project or of the whole organisation (tenant admins)."""

    month = Text(max_length=7, help_text="`2026-11`.")
    project = Text(max_length=40, required=False, default="")


class StatementQuery(FileQuery):
    """A month and a grouping."""

    by = Text(max_length=70, required=False, default="person", help_text=GROUPING)


class Statements(ApiView):
    """The statement of a month."""

    queries = {"GET": StatementQuery}

    @described(
        "get_statement", "The statement of a month", answer=StatementOut, query=StatementQuery
    )
    def get(self, request: Request) -> Response:
        """Describes the statement and its sums by person, project, ticket, label and so on."""
        with self.tx():
            of = _which(self)
            statement = statement_of(of, group_check(self.query["by"]))
            sums = [
                {"name": name, "lines": each.lines, "amount": each.amount}
                for name, each in statement.groups
            ]
            shown = StatementOut(
                {
                    "month": f"{of.month.starts:%Y-%m}",
                    "project": of.project.slug if of.project else None,
                    "closed_at": statement.closed.closed_at if statement.closed else None,
                    "currency": statement.currency,
                    "lines": statement.totals.lines,
                    "amount": statement.totals.amount,
                    "exact": statement.totals.exact,
                    "by": self.query["by"],
                    "sums": sums,
                }
            )
            return Response(dict(shown.data))


def _file_view(
    kind: str, operation: str, summary: str, answer: OpenApiTypes = OpenApiTypes.STR
) -> type[ApiView]:
    """Returns the view of a kind of file."""

    class StatementFile(ApiView):
        """A file of a statement."""

        queries = {"GET": FileQuery}

        @described(
            operation,
            summary,
            answer=answer,
            status=(200, FILES[kind][0].partition(";")[0]),
            query=FileQuery,
        )
        def get(self, request: Request) -> HttpResponseBase:
            """Returns the file."""
            with self.tx():
                tenant = Tenant.objects.get(id=self.actor.tenant_id)
                return statement_file_make(_which(self), tenant, kind).response()

    return StatementFile


StatementCsv = _file_view("csv", "get_statement_csv", "The lines of a statement as CSV")
StatementPdf = _file_view("pdf", "get_statement_pdf", "A statement as PDF", OpenApiTypes.BINARY)
FocusCsv = _file_view(
    "focus.csv", "get_focus_export", "The lines of a statement in the columns of FOCUS 1.2"
)


def _which(view: ApiView) -> StatementOf:
    month = month_read(view.query["month"])
    return StatementOf(view.actor.tenant_id, month, project_read(view.actor, view.query["project"]))
