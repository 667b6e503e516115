"""Who is in which project, and what they may do."""

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.models import Project, Role
from tenants.queries import admins_of, people_of
from tenants.services import (
    membership_remove,
    membership_set,
    project_create,
    project_open_set,
)
from tenants.web.acts import act_run, id_read
from tenants.web.frame import tenant_page


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def people(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Members by project; leads change their project's, tenant admins everybody's."""
    refusal = None
    if request.method == "POST":
        refusal = act_run(
            request,
            {
                "set": lambda form: _set(actor, form),
                "remove": lambda form: _remove(actor, form),
                "project": lambda form: _project(actor, form),
                "open": lambda form: _open(actor, form, is_open=True),
                "close": lambda form: _open(actor, form, is_open=False),
            },
        )
        if refusal is None:
            return redirect("people", tenant=actor.tenant_slug)
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("-is_open", "name", "id")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    context = {
        "groups": [(group, actor.may_lead(group.project.id)) for group in people_of(projects)],
        "admins": admins_of(actor.tenant_id),
        "roles": [role for role in Role if role != Role.TENANT_ADMIN],
        "refusal": refusal,
        "typed": request.POST,
    }
    status = 422 if refusal else 200
    return render(request, "tenants/people.html", context, status=status)


def _set(actor: Actor, form: QueryDict) -> str:
    member = membership_set(
        actor=actor,
        username=form.get("username", ""),
        role=form.get("role", ""),
        project=form.get("project") or None,
        now=timezone.now(),
    )
    return f"{member.user.username} is now {Role(member.role).label.lower()}."


def _remove(actor: Actor, form: QueryDict) -> str:
    membership_remove(
        actor=actor, membership_id=id_read(form, "membership", "membership"), now=timezone.now()
    )
    return "Removed. Their rights end with their next request."


def _project(actor: Actor, form: QueryDict) -> str:
    project = project_create(
        actor=actor, slug=form.get("slug", ""), name=form.get("name", ""), now=timezone.now()
    )
    return f"{project.name} is ready. Add its people, then its quota and budget."


def _open(actor: Actor, form: QueryDict, *, is_open: bool) -> str:
    project = project_open_set(
        actor=actor, slug=form.get("project", ""), is_open=is_open, now=timezone.now()
    )
    return f"{project.name} is {'open again' if is_open else 'closed for new bookings'}."
