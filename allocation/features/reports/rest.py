"""REST of a person's reports by mail."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.reports.models import ReportSubscription
from allocation.features.reports.services import (
    ReportTerms,
    report_subscribe,
    report_unsubscribe,
    reports_managed,
)
from allocation.models import FileFormat
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.terms import Slug

rest = Endpoints(Scope.ADMIN, in_project=True)


class ReportOut(serializers.Serializer[Any]):
    """A statement that is mailed regularly."""

    id = serializers.UUIDField()
    project = Slug(help_text="Null: the organisation.")
    lab = Slug()
    person = serializers.CharField(source="user.username", help_text="Who gets it.")
    cadence = serializers.ChoiceField(choices=ReportSubscription.Cadence.values)
    format = serializers.ChoiceField(choices=FileFormat.values)
    at = serializers.TimeField(format="%H:%M")
    zone = serializers.CharField(help_text="Whose clocks `at` is.")
    due = serializers.DateTimeField(help_text="When the next report is sent.")


@rest.list("reports", "Statements by mail that you get, or may end", ReportOut)
def list_reports(call: ApiView) -> QuerySet[ReportSubscription]:
    """Lists reports, the oldest first."""
    return reports_managed(call.actor, call.now)


@rest.post(
    "reports",
    "Get the statement of a project, of a lab, or of the organisation (tenant admins), by mail",
    ReportOut,
    terms=ReportTerms,
    status=201,
)
def create_report(call: ApiView, terms: ReportTerms) -> ReportSubscription:
    """Adds a report."""
    return report_subscribe(actor=call.actor, terms=terms, now=call.now)


@rest.delete("reports/<uuid:report_id>", "End a report")
def end_report(call: ApiView, report_id: UUID) -> None:
    """Ends the report."""
    report_unsubscribe(actor=call.actor, report_id=report_id, now=call.now)


urlpatterns = rest.urls
