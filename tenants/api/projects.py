"""Projects and the people in them."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import Actor, access_project
from tenants.api.base import ApiView, list_response
from tenants.models import Membership, Project
from tenants.platform.fields import Flag, Strict, Text
from tenants.platform.pagination import PageQuery, page_of
from tenants.platform.schema import described, page
from tenants.services import (
    membership_remove,
    membership_role_set,
    project_create,
    project_open_set,
)


class ProjectOut(serializers.Serializer[Any]):
    """A team of the tenant, and the caller's role in it."""

    slug = serializers.CharField()
    name = serializers.CharField()
    is_open = serializers.BooleanField()
    role = serializers.CharField()


class ProjectNew(Strict):
    """A project to make."""

    slug = Text(max_length=40)
    name = Text(max_length=120)


class ProjectChange(Strict):
    """Open or closed for new bookings."""

    is_open = Flag()


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
    """The projects the caller may see."""

    queries = {"GET": PageQuery}

    @described("list_projects", "Projects you may see", answer=page(ProjectOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """A page by slug."""
        with self.tx():
            rows = Project.objects.filter(tenant_id=self.actor.tenant_id)
            if not self.actor.is_tenant_admin:
                rows = rows.filter(id__in=self.actor.roles)
            projects, next_cursor = page_of(
                rows, keys=("slug",), query=self.query, scope=f"projects:{self.actor.tenant_id}"
            )
            return list_response((_shown(self.actor, project) for project in projects), next_cursor)

    @described(
        "create_project",
        "Make a project (tenant admins)",
        answer=ProjectOut,
        status=201,
        request=ProjectNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The new project."""
        sent = self.sent(ProjectNew)

        def work() -> Response:
            project = project_create(actor=self.actor, **sent, now=self.now)
            return Response(_shown(self.actor, project), status=201)

        return self.once(work)


class ProjectOne(ApiView):
    """One project."""

    @described("get_project", "One project", answer=ProjectOut)
    def get(self, request: Request, slug: str) -> Response:
        """The project."""
        with self.tx():
            return Response(_shown(self.actor, access_project(self.actor, slug)))

    @described(
        "set_project",
        "Open or close a project (tenant admins)",
        answer=ProjectOut,
        request=ProjectChange,
    )
    def put(self, request: Request, slug: str) -> Response:
        """The project after the change."""
        sent = self.sent(ProjectChange)
        with self.tx():
            access_project(self.actor, slug)
            project = project_open_set(
                actor=self.actor, slug=slug, is_open=sent["is_open"], now=self.now
            )
            return Response(_shown(self.actor, project))


class ProjectMembers(ApiView):
    """Who is in a project."""

    queries = {"GET": PageQuery}

    @described("list_members", "People of a project", answer=page(MemberOut), query=PageQuery)
    def get(self, request: Request, slug: str) -> Response:
        """A page of roles."""
        with self.tx():
            project = access_project(self.actor, slug)
            members, next_cursor = page_of(
                Membership.objects.filter(
                    tenant_id=self.actor.tenant_id, project=project
                ).select_related("user"),
                keys=("id",),
                query=self.query,
                scope=f"members:{project.id}",
            )
            return list_response(MemberOut(members, many=True).data, next_cursor)


class MemberOne(ApiView):
    """One role of one person. New members are invited: `POST /invitations`."""

    @described("set_member", "Change a member's role", answer=MemberOut, request=MemberChange)
    def put(self, request: Request, member_id: UUID) -> Response:
        """The member with the new role."""
        sent = self.sent(MemberChange)
        with self.tx():
            membership = membership_role_set(
                actor=self.actor, membership_id=member_id, role=sent["role"], now=self.now
            )
            return Response(MemberOut(membership).data)

    @described("remove_member", "End a person's role", answer=None, status=204)
    def delete(self, request: Request, member_id: UUID) -> Response:
        """Nothing, when it is done."""
        with self.tx():
            membership_remove(actor=self.actor, membership_id=member_id, now=self.now)
        return Response(status=204)


def _shown(actor: Actor, project: Project) -> dict[str, Any]:
    return {
        "slug": project.slug,
        "name": project.name,
        "is_open": project.is_open,
        "role": actor.role_in(project.id),
    }
