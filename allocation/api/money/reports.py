"""A person's reports by mail."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.models import ReportSubscription
from allocation.queries.bookings.money.statement_files import lab_read, project_read
from allocation.services.operate.reports import (
    ReportTerms,
    report_subscribe,
    report_unsubscribe,
    reports_managed,
)
from allocation.words.refusals import refusal_text
from tenants.api.base import ApiView, list_response
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.services.notifications import clock_read


class ReportOut(serializers.Serializer[Any]):
    """A statement that is mailed regularly."""

    id = serializers.UUIDField()
    project = serializers.CharField(
        source="project.slug", default=None, allow_null=True, help_text="Null: the organisation."
    )
    lab = serializers.CharField(source="lab.slug", default=None, allow_null=True)
    person = serializers.CharField(source="user.username", help_text="Who gets it.")
    cadence = serializers.ChoiceField(choices=ReportSubscription.Cadence.values)
    format = serializers.ChoiceField(choices=ReportSubscription.Format.values)
    at = serializers.TimeField(format="%H:%M")
    zone = serializers.CharField(help_text="Whose clocks `at` is.")
    due = serializers.DateTimeField(help_text="When the next report is sent.")


class ReportNew(Strict):
    """Which statement, how often and as which file."""

    project = Text(max_length=40, required=False, default="", help_text="Left out: all projects.")
    lab = Text(max_length=40, required=False, default="", help_text="By its leads and tenant admins.")
    cadence = serializers.ChoiceField(choices=ReportSubscription.Cadence.values)
    format = serializers.ChoiceField(choices=ReportSubscription.Format.values, required=False, default="pdf")
    at = Text(max_length=5, required=False, default="08:00", help_text="In the person's time zone.")
    person = Text(
        max_length=150,
        required=False,
        default="",
        help_text="Sign-in name, by leads and tenant admins. Left out: you.",
    )


class Reports(ApiView):
    """The caller's reports, and those of others that it may end."""

    @described(
        "list_reports",
        "Statements by mail that you get, or may end",
        answer=page(ReportOut),
    )
    def get(self, request: Request) -> Response:
        """Lists reports, the oldest first."""
        with self.tx():
            found = reports_managed(self.actor, self.now).select_related("project", "lab", "user")
            return list_response(dict(ReportOut(row).data) for row in found)

    @described(
        "create_report",
        "Get the statement of a project, of a lab, or of the organisation (tenant admins), by mail",
        answer=ReportOut,
        status=201,
        request=ReportNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Adds a report."""
        sent = self.sent(ReportNew)

        def work() -> Response:
            slug, at = sent["project"], clock_read(sent["at"], "at")
            if at is None:
                raise invalid("bad_clock", refusal_text("bad_clock"), "at")
            if slug and sent["lab"]:
                raise invalid("bad_value", refusal_text("project_or_lab"), "lab")
            project = project_read(self.actor, slug) if slug else None
            lab = lab_read(self.actor, sent["lab"]) if sent["lab"] else None
            terms = ReportTerms(project, sent["cadence"], sent["format"], at, sent["person"], lab)
            row = report_subscribe(actor=self.actor, terms=terms, now=self.now)
            return Response(dict(ReportOut(row).data), status=201)

        return self.once(work)


class ReportOne(ApiView):
    """One report of the caller."""

    @described("end_report", "End a report", status=204)
    def delete(self, request: Request, report_id: UUID) -> Response:
        """Ends the report."""
        with self.tx():
            report_unsubscribe(actor=self.actor, report_id=report_id, now=self.now)
        return Response(status=204)
