"""Labs, their leads, and what they may use."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.lab_queries import lab_seen, labs_seen
from tenants.models import Lab, LabLead, Project
from tenants.platform.rest.fields import Flag, Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.services.labs.labs import (
    lab_create,
    lab_lead_add,
    lab_lead_remove,
    lab_open_set,
    lab_rename,
)


class LabOut(serializers.Serializer[Any]):
    """A lab, its projects and its leads."""

    slug = serializers.CharField()
    name = serializers.CharField()
    is_open = serializers.BooleanField(help_text="False: archived, without projects.")
    projects = serializers.ListField(child=serializers.CharField())
    leads = serializers.ListField(child=serializers.CharField(), help_text="Sign-in names.")


class LabNew(Strict):
    """A new lab."""

    slug = Text(max_length=40)
    name = Text(max_length=120)


class LabChange(Strict):
    """Another name, or archived or open."""

    name = Text(required=False, max_length=120)
    is_open = Flag(required=False)


class LeadNew(Strict):
    """A member who leads the lab."""

    username = Text(max_length=150)


class Labs(ApiView):
    """The labs of the tenant."""

    @described("list_labs", "Labs", answer=page(LabOut))
    def get(self, request: Request) -> Response:
        """Lists labs by name."""
        with self.tx():
            return list_response(_shown(lab) for lab in labs_seen(self.actor))

    @described("create_lab", "Create a lab (tenant admins)", answer=LabOut, status=201, request=LabNew)
    def post(self, request: Request) -> HttpResponseBase:
        """Creates the lab."""
        sent = self.sent(LabNew)

        def work() -> Response:
            lab = lab_create(actor=self.actor, **sent, now=self.now)
            return Response(_shown(lab), status=201)

        return self.once(work)


class LabOne(ApiView):
    """One lab."""

    @described("get_lab", "One lab", answer=LabOut)
    def get(self, request: Request, lab: str) -> Response:
        """Describes the lab."""
        with self.tx():
            return Response(_shown(lab_seen(self.actor, lab)))

    @described(
        "set_lab",
        "Rename, archive or reopen a lab (tenant admins)",
        answer=LabOut,
        request=LabChange,
    )
    def put(self, request: Request, lab: str) -> Response:
        """Changes what is named."""
        sent = self.sent(LabChange)
        with self.tx():
            found = lab_seen(self.actor, lab)
            if "name" in sent:
                found = lab_rename(actor=self.actor, slug=lab, name=sent["name"], now=self.now)
            if "is_open" in sent:
                found = lab_open_set(actor=self.actor, slug=lab, is_open=sent["is_open"], now=self.now)
            return Response(_shown(found))


class LabLeads(ApiView):
    """The leads of a lab."""

    @described(
        "add_lab_lead",
        "Make a member a lead of a lab (tenant admins)",
        answer=LabOut,
        status=201,
        request=LeadNew,
    )
    def post(self, request: Request, lab: str) -> HttpResponseBase:
        """Makes the member a lead."""
        sent = self.sent(LeadNew)

        def work() -> Response:
            found = lab_seen(self.actor, lab)
            lab_lead_add(actor=self.actor, slug=lab, username=sent["username"], now=self.now)
            return Response(_shown(found), status=201)

        return self.once(work)


class LabLeadOne(ApiView):
    """One lead of a lab."""

    @described(
        "remove_lab_lead",
        "Take the lead of a lab from a person (tenant admins)",
        answer=None,
        status=204,
    )
    def delete(self, request: Request, lab: str, username: str) -> Response:
        """Takes the lead from the person."""
        with self.tx():
            lab_seen(self.actor, lab)
            lab_lead_remove(actor=self.actor, slug=lab, username=username, now=self.now)
        return Response(status=204)


def _shown(lab: Lab) -> dict[str, Any]:
    leads = LabLead.objects.filter(lab=lab).order_by("user__username")
    projects = Project.objects.filter(lab=lab).order_by("slug")
    return {
        "slug": lab.slug,
        "name": lab.name,
        "is_open": lab.is_open,
        "projects": list(projects.values_list("slug", flat=True)),
        "leads": list(leads.values_list("user__username", flat=True)),
    }
