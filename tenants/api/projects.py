"""Projects and their members."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import Actor, access_project
from tenants.api.base import ApiView, list_response
from tenants.models import Membership, Project
from tenants.platform.labels import MAX_REFERENCE, MAX_TEXT, Labels, Reference, labelled
from tenants.platform.rest.fields import Flag, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.services import (
    membership_remove,
    membership_role_set,
    project_create,
    project_labels_set,
    project_open_set,
)
from tenants.services.labs.labs import project_lab_set


class ProjectOut(serializers.Serializer[Any]):
    """A project of the tenant, and the caller's role in it."""

    slug = serializers.CharField()
    name = serializers.CharField()
    is_open = serializers.BooleanField()
    lab = serializers.CharField(allow_null=True)
    role = serializers.CharField()
    labels = Labels(help_text="Its charges have them, too, unless a booking has its own.")
    external_ref = serializers.CharField(help_text="A URL or a ticket's key.")


class ProjectQuery(PageQuery):
    """A page, and filters."""

    # Any: the base class has an attribute of this name.
    label: Any = Text(required=False, max_length=MAX_TEXT, help_text="`team=vision`; all of them.")
    external_ref = Text(required=False, max_length=MAX_REFERENCE)


class ProjectNew(Strict):
    """A new project."""

    slug = Text(max_length=40)
    name = Text(max_length=120)


class ProjectChange(Strict):
    """What is left out stays. Leads set labels and the reference, tenant admins all."""

    is_open = Flag(required=False)
    lab = Text(required=False, allow_null=True, max_length=40, help_text="Null: in none.")
    labels = Labels(required=False)
    external_ref = Reference(required=False)


class MemberOut(serializers.Serializer[Any]):
    """A person's role in a project."""

    id = serializers.UUIDField()
    username = serializers.CharField(source="user.username")
    name = serializers.CharField(source="user.get_full_name")
    role = serializers.CharField()


class MemberChange(Strict):
    """Another role in the project: viewer, researcher or lead."""

    role = Text(max_length=16)


class Projects(ApiView):
    """The projects that the caller can see."""

    queries = {"GET": ProjectQuery}

    @described("list_projects", "Projects you can see", answer=page(ProjectOut), query=ProjectQuery)
    def get(self, request: Request) -> Response:
        """Lists projects by slug."""
        with self.tx():
            rows = Project.objects.filter(tenant_id=self.actor.tenant_id).select_related("lab")
            if not self.actor.is_tenant_admin:
                rows = rows.filter(id__in=self.actor.roles)
            rows = labelled(rows, self.query)
            projects, next_cursor = page_of(
                rows, keys=("slug",), query=self.query, scope=f"projects:{self.actor.tenant_id}"
            )
            return list_response((_shown(self.actor, project) for project in projects), next_cursor)

    @described(
        "create_project",
        "Create a project (tenant admins)",
        answer=ProjectOut,
        status=201,
        request=ProjectNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates the project."""
        sent = self.sent(ProjectNew)

        def work() -> Response:
            project = project_create(actor=self.actor, **sent, now=self.now)
            return Response(_shown(self.actor, project), status=201)

        return self.once(work)


class ProjectOne(ApiView):
    """One project."""

    @described("get_project", "One project", answer=ProjectOut)
    def get(self, request: Request, slug: str) -> Response:
        """Describes the project."""
        with self.tx():
            return Response(_shown(self.actor, access_project(self.actor, slug)))

    @described(
        "set_project",
        "Open or close a project, or move it to a lab (tenant admins); set labels (leads, too)",
        answer=ProjectOut,
        request=ProjectChange,
    )
    def put(self, request: Request, slug: str) -> Response:
        """Changes what is named."""
        sent = self.sent(ProjectChange)
        with self.tx():
            project = access_project(self.actor, slug)
            if "lab" in sent:
                project = project_lab_set(actor=self.actor, project=slug, lab=sent["lab"], now=self.now)
            if "is_open" in sent:
                project = project_open_set(actor=self.actor, slug=slug, is_open=sent["is_open"], now=self.now)
            project = project_labels_set(
                actor=self.actor,
                project=project,
                labels=sent.get("labels"),
                external_ref=sent.get("external_ref"),
                now=self.now,
            )
            return Response(_shown(self.actor, project))


class ProjectMembers(ApiView):
    """The members of a project."""

    queries = {"GET": PageQuery}

    @described("list_members", "Members of a project", answer=page(MemberOut), query=PageQuery)
    def get(self, request: Request, slug: str) -> Response:
        """Lists members and roles."""
        with self.tx():
            project = access_project(self.actor, slug)
            members, next_cursor = page_of(
                Membership.objects.filter(tenant_id=self.actor.tenant_id, project=project).select_related(
                    "user"
                ),
                keys=("id",),
                query=self.query,
                scope=f"members:{project.id}",
            )
            return list_response(MemberOut(members, many=True).data, next_cursor)


class MemberOne(ApiView):
    """A membership. New members are invited with `POST /invitations`."""

    @described("set_member", "Change a member's role", answer=MemberOut, request=MemberChange)
    def put(self, request: Request, member_id: UUID) -> Response:
        """Changes the role."""
        sent = self.sent(MemberChange)
        with self.tx():
            membership = membership_role_set(
                actor=self.actor, membership_id=member_id, role=sent["role"], now=self.now
            )
            return Response(MemberOut(membership).data)

    @described("remove_member", "Remove a member", answer=None, status=204)
    def delete(self, request: Request, member_id: UUID) -> Response:
        """Removes the member."""
        with self.tx():
            membership_remove(actor=self.actor, membership_id=member_id, now=self.now)
        return Response(status=204)


def _shown(actor: Actor, project: Project) -> dict[str, Any]:
    return {
        "slug": project.slug,
        "name": project.name,
        "is_open": project.is_open,
        "lab": project.lab.slug if project.lab else None,
        "role": actor.role_in(project.id),
        "labels": project.labels,
        "external_ref": project.external_ref,
    }
