"""Campaigns: named pieces of a project's work, whose bookings can have a budget together."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import Campaign
from billing.services import CampaignMatch, campaign_create, campaign_match_set, campaign_open_set
from tenants.access import access_project
from tenants.api.base import ApiView, list_response
from tenants.platform.errors import missing
from tenants.platform.labels import Labels, Reference
from tenants.platform.rest.fields import Flag, Strict, Text
from tenants.platform.rest.schema import described, page


class CampaignOut(serializers.Serializer[Any]):
    """A campaign of a project."""

    id = serializers.UUIDField()
    project = serializers.CharField(source="project.slug")
    slug = serializers.CharField()
    name = serializers.CharField()
    is_open = serializers.BooleanField(help_text="Whether new bookings can use it.")
    match_labels = Labels(help_text="New bookings with all of these labels belong to it without naming it.")
    match_ref = serializers.CharField(help_text="The same for a ticket.")


class CampaignQuery(Strict):
    """A filter."""

    project = Text(required=False, max_length=40)


class CampaignNew(Strict):
    """A campaign; its slug is made from its name."""

    project = Text(max_length=40)
    name = Text(max_length=80)
    match_labels = Labels(required=False)
    match_ref = Reference(required=False)


class CampaignChange(Strict):
    """Opens or closes it, or sets what belongs to it."""

    is_open = Flag(required=False)
    match_labels = Labels(required=False)
    match_ref = Reference(required=False)


class Campaigns(ApiView):
    """The campaigns of the caller's projects."""

    queries = {"GET": CampaignQuery}

    @described("list_campaigns", "Campaigns by name", answer=page(CampaignOut), query=CampaignQuery)
    def get(self, request: Request) -> Response:
        """Lists campaigns by name."""
        with self.tx():
            found = Campaign.objects.filter(tenant_id=self.actor.tenant_id)
            if "project" in self.query:
                project = access_project(self.actor, self.query["project"], "project")
                found = found.filter(project=project)
            elif not self.actor.is_tenant_admin:
                found = found.filter(project__in=list(self.actor.roles))
            rows = found.select_related("project")
            return list_response(dict(CampaignOut(row).data) for row in rows)

    @described(
        "create_campaign",
        "Create a campaign (project leads and tenant admins)",
        answer=CampaignOut,
        status=201,
        request=CampaignNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates a campaign."""
        sent = self.sent(CampaignNew)

        def work() -> Response:
            project = access_project(self.actor, sent["project"], "project")
            campaign = campaign_create(
                actor=self.actor,
                project=project,
                name=sent["name"],
                now=self.now,
                match=CampaignMatch(sent.get("match_labels", {}), sent.get("match_ref", "")),
            )
            return Response(dict(CampaignOut(campaign).data), status=201)

        return self.once(work)


class CampaignOne(ApiView):
    """One campaign."""

    @described(
        "set_campaign",
        "Open or close a campaign (project leads and tenant admins)",
        answer=CampaignOut,
        request=CampaignChange,
    )
    def put(self, request: Request, campaign_id: UUID) -> Response:
        """Opens or closes the campaign."""
        sent = self.sent(CampaignChange)
        with self.tx():
            found = Campaign.objects.filter(tenant_id=self.actor.tenant_id, id=campaign_id)
            campaign = found.select_related("project").first()
            if campaign is None or self.actor.role_in(campaign.project_id) is None:
                raise missing("campaign")
            is_open = sent.get("is_open", campaign.is_open)
            campaign_open_set(actor=self.actor, campaign=campaign, is_open=is_open, now=self.now)
            if "match_labels" in sent or "match_ref" in sent:
                match = CampaignMatch(
                    sent.get("match_labels", campaign.match_labels),
                    sent.get("match_ref", campaign.match_ref),
                )
                campaign_match_set(actor=self.actor, campaign=campaign, match=match, now=self.now)
            return Response(dict(CampaignOut(campaign).data))
