"""Statements: what was charged in a month, with its sums and files."""

from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.queries.bookings.money.statement_files import (
    PARQUET,
    month_read,
    statement_file_make,
    statement_read,
)
from allocation.queries.bookings.money.statements import (
    GROUPS,
    LAB,
    StatementOf,
    group_check,
    statement_of,
)
from allocation.words.refusals import refusal_text
from tenants.api.base import ApiView
from tenants.models import Tenant
from tenants.platform.costly import costly
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Money, Strict, Text
from tenants.platform.rest.schema import described

GROUPING = ", ".join(f"`{each}`" for each in GROUPS) + ", or `label:` and a key: `label:team`."


class SumOut(serializers.Serializer[Any]):
    """The sum of a group's lines."""

    name = serializers.CharField(help_text="Empty for lines without a campaign, and for rented machines.")
    lines = serializers.IntegerField()
    amount = Money(
        max_digits=20,
        decimal_places=2,
        min_value=None,
        help_text="In cents that add up to the statement's `amount`, except by project: those are "
        "what budgets show.",
    )
    exact = Money(max_digits=20, min_value=None, help_text="What the ledger, `/spend` and `/kpis` have.")


class StatementOut(serializers.Serializer[Any]):
    """A statement: `amount` is the ledger's sum, rounded half-even to cents."""

    month = serializers.CharField(help_text="`2026-11`, in UTC.")
    project = serializers.CharField(allow_null=True, help_text="Null: all projects.")
    lab = serializers.CharField(allow_null=True, help_text="Whose projects it has.")
    closed_at = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField()
    lines = serializers.IntegerField()
    amount = Money(max_digits=20, decimal_places=2, min_value=None)
    exact = Money(max_digits=20, min_value=None, help_text="Without rounding.")
    by = serializers.CharField(help_text=GROUPING)
    sums = SumOut(many=True)


class FileQuery(Strict):
    """A month, of one project, of one lab, or of the whole organisation (tenant admins)."""

    month = Text(max_length=7, help_text="`2026-11`.")
    project = Text(max_length=40, required=False, default="")
    lab = Text(max_length=40, required=False, default="", help_text="By its leads and tenant admins.")


class FocusQuery(FileQuery):
    """A month, and the format of the file."""

    format = serializers.ChoiceField(choices=["csv", "parquet"], required=False)


class StatementQuery(FileQuery):
    """A month and a grouping."""

    by = Text(max_length=70, required=False, default="person", help_text=GROUPING)


@costly("statement")
class Statements(ApiView):
    """The statement of a month."""

    queries = {"GET": StatementQuery}

    @described("get_statement", "The statement of a month", answer=StatementOut, query=StatementQuery)
    def get(self, request: Request) -> Response:
        """Describes the statement and its sums by person, project, ticket, label and so on."""
        with self.tx():
            of = statement_asked(self)
            statement = statement_of(of, group_check(self.query["by"]))
            sums = [
                {"name": name, "lines": each.lines, "amount": each.amount, "exact": each.exact}
                for name, each in statement.groups
            ]
            shown = StatementOut(
                {
                    "month": f"{of.month.starts:%Y-%m}",
                    "project": of.project.slug if of.project else None,
                    "lab": of.lab.slug if of.lab else None,
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


@costly("statement")
class FileView(ApiView):
    """A file of a statement, whatever the request accepts: errors are problem documents."""

    queries = {"GET": FileQuery}

    def perform_content_negotiation(
        self,
        request: Request,
        force: bool = False,  # noqa: FBT001, FBT002 (the framework's signature)
    ) -> tuple[BaseRenderer, str]:
        """Returns JSON for everything but the file itself."""
        return JSONRenderer(), JSONRenderer.media_type

    def file(self, kind: str) -> HttpResponseBase:
        """The file of a kind in `FILES`."""
        with self.tx():
            tenant = Tenant.objects.get(id=self.actor.tenant_id)
            return statement_file_make(statement_asked(self), tenant, kind).response()


class StatementCsv(FileView):
    """A statement as CSV."""

    @described(
        "get_statement_csv",
        "The lines of a statement as CSV",
        answer=OpenApiTypes.STR,
        status=(200, "text/csv"),
        query=FileQuery,
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Returns the file."""
        return self.file("csv")


class StatementPdf(FileView):
    """A statement as PDF."""

    @described(
        "get_statement_pdf",
        "A statement as PDF",
        answer=OpenApiTypes.BINARY,
        status=(200, "application/pdf"),
        query=FileQuery,
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Returns the file."""
        return self.file("pdf")


class FocusExport(FileView):
    """The lines in the columns of FOCUS 1.2."""

    queries = {"GET": FocusQuery}

    @described(
        "get_focus_export",
        "The lines of a statement in the columns of FOCUS 1.2, as CSV, or as Parquet with "
        f"`format=parquet` or `Accept: {PARQUET}`",
        answer=OpenApiTypes.STR,
        status=(200, "text/csv"),
        query=FocusQuery,
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Returns the file; `format` counts more than `Accept`."""
        accepted = "parquet" if PARQUET in request.headers.get("Accept", "") else "csv"
        return self.file(f"focus.{self.query.get('format', accepted)}")


def statement_asked(view: ApiView) -> StatementOf:
    """Whose month a `FileQuery` asks for.

    Raises:
        Refused: `bad_month`, `bad_value` (a project and a lab), `not_found` or `not_allowed`.
    """
    month = month_read(view.query["month"])
    project, lab = view.query["project"], view.query["lab"]
    if project and lab:
        raise invalid("bad_value", refusal_text("project_or_lab"), "lab")
    return statement_read(view.actor, month, f"{LAB}{lab}" if lab else project)
