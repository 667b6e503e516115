"""The page of members, roles, invitations and projects."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.models import KnownPerson, Membership, Project, Role, User
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import FormAction, form_action_run, id_read, number_text_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.queries import (
    PersonRoles,
    invitations_of,
    leads_of,
    people_count,
    people_listed,
)
from tenants.services import (
    invitation_create,
    invitation_revoke,
    membership_remove,
    membership_role_set,
    project_create,
    project_open_set,
)
from tenants.services.members.access import member_enabled_set, members_of
from tenants.services.members.invitations import may_see
from tenants.web.frame import tenant_page
from tenants.web.parts import counted

MAX_WANTED = 80
PAGE_ROWS = 50
MOST_PAGES = 10_000
EVERYWHERE = "*"
"""In place of a project: the whole organisation, in which there is one role."""


@dataclass(frozen=True, slots=True)
class InviteForm:
    """The invite form's values: empty, or as typed when it was refused."""

    to: str = ""
    error: str = ""
    role: str = Role.RESEARCHER
    project: str = ""


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A role of a person in a project."""

    membership: Membership
    may_change: bool


@dataclass(frozen=True, slots=True)
class PersonRow:
    """A person in the list. `is_open`: the forms that change their roles are shown."""

    person: PersonRoles
    roles: list[RoleRow]
    may_change: bool
    is_open: bool
    is_disabled: bool
    edit: str
    """The query of the page with the forms that change their roles."""


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project in the list of projects."""

    project: Project
    people: int


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def people(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows people with their roles. Leads manage their projects, tenant admins all of them."""
    refusal = None
    if request.method == "POST":
        if (question := _question(actor, request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(request, _acts(actor))
        if refusal is None:
            return redirect("people", tenant=actor.tenant_slug)
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("-is_open", "name", "id")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    context = {
        **_listed(request, actor, [each.id for each in projects]),
        "projects": _project_rows(projects),
        "invite": _typed_invite(request.POST, refusal),
        "places": _places(actor, projects),
        "invited": [each for each in invitations_of(actor.tenant_id, timezone.now()) if may_see(actor, each)],
        "new_project": {**request.POST.dict(), "refusal": refusal}
        if refusal and request.POST.get("act") == "project"
        else {},
        "roles": [each for each in Role.choices if each[0] != Role.TENANT_ADMIN],
        "refusal": None if request.POST.get("act") in ("invite", "project") else refusal,
    }
    status = 422 if refusal else 200
    return render(request, "tenants/people.html", context, status=status)


def _listed(request: HttpRequest, actor: Actor, projects: list[UUID]) -> dict[str, object]:
    """The rows of the page's people, and where the pages before and after are."""
    asked = request.GET
    wanted = asked.get("q", "").replace("\x00", "").strip()[:MAX_WANTED]
    slug = asked.get("project", "").replace("\x00", "")
    number = min(number_text_read(asked.get("page", "")) or 1, MOST_PAGES)
    of = Project.objects.filter(id__in=projects, slug=slug).first() if slug else None
    page = people_listed(
        actor.tenant_id,
        [of.id] if of else projects,
        wanted,
        first=(number - 1) * PAGE_ROWS,
        most=PAGE_ROWS,
    )
    disabled = _disabled(actor)
    ids = {each.pk for each in disabled}
    query = {"q": wanted, "project": of.slug if of else "", "page": str(number) if number > 1 else ""}
    kept = {name: value for name, value in query.items() if value}
    rows = [_person_row(actor, each, asked.get("edit", ""), ids, kept) for each in page.people]
    return {
        "wanted": wanted,
        "of": of,
        "people": rows,
        "count": page.count,
        "may_change_any": any(row.may_change for row in rows),
        "query": urlencode({name: value for name, value in kept.items() if name != "page"}),
        "before": number - 1,
        "after": number + 1 if number * PAGE_ROWS < page.count else 0,
        "disabled": disabled,
    }


def _person_row(
    actor: Actor, person: PersonRoles, opened: str, disabled: set[int], query: dict[str, str]
) -> PersonRow:
    roles = [RoleRow(each, _may_lead(actor, each)) for each in person.roles]
    may_change = actor.is_tenant_admin or any(each.may_change for each in roles)
    is_open = may_change and person.user.username == opened
    edit = urlencode({"edit": person.user.username, **query})
    return PersonRow(person, roles, may_change, is_open, person.user.pk in disabled, edit)


def _may_lead(actor: Actor, membership: Membership) -> bool:
    return membership.project_id is not None and actor.may_lead(membership.project_id)


def _project_rows(projects: Iterable[Project]) -> list[ProjectRow]:
    found = list(projects)
    members = Membership.objects.filter(project__in=found, user__is_active=True, user__service_account=None)
    counts = dict(members.values_list("project").annotate(people=Count("user", distinct=True)).order_by())
    return [ProjectRow(each, counts.get(each.id, 0)) for each in found]


def _places(actor: Actor, projects: Iterable[Project]) -> list[tuple[str, str]]:
    """To what the reader may invite: open projects, and the whole organisation for its admins."""
    led = [(each.slug, each.name) for each in projects if each.is_open and actor.may_lead(each.id)]
    return [*led, (EVERYWHERE, "The whole organisation, as admin")] if actor.is_tenant_admin else led


def _acts(actor: Actor) -> dict[str, FormAction]:
    """What the forms of the page do, by the value of their `act`."""
    return {
        "invite": lambda form: _invite(actor, form),
        "revoke": lambda form: _revoke(actor, form),
        "role": lambda form: _role(actor, form),
        "remove": lambda form: _remove(actor, form),
        "disable": lambda form: _enabled(actor, form, is_enabled=False),
        "enable": lambda form: _enabled(actor, form, is_enabled=True),
        "project": lambda form: _project(actor, form),
        "open": lambda form: _open(actor, form, is_open=True),
        "close": lambda form: _open(actor, form, is_open=False),
    }


def _typed_invite(form: QueryDict, refusal: Refused | None) -> InviteForm:
    """Returns the typed values of a refused invitation."""
    if refusal is None or form.get("act") != "invite":
        return InviteForm()
    return InviteForm(form.get("to", ""), refusal.sentence, form.get("role", ""), form.get("project", ""))


def _invite(actor: Actor, form: QueryDict) -> str:
    is_for_all = form.get("project") == EVERYWHERE
    invitation = invitation_create(
        actor=actor,
        to=form.get("to", ""),
        role=Role.TENANT_ADMIN if is_for_all else form.get("role", ""),
        project=None if is_for_all else form.get("project") or None,
        now=timezone.now(),
    )
    where = f" to {invitation.project.name}" if invitation.project else ""
    invited = f"Invited {invitation.invitee}{where} as {Role(invitation.role).label.lower()}."
    if settings.MAIL_ON and "@" in invitation.invitee:
        return f"{invited} A mail with a link is on its way."
    return f"{invited} If the account exists, the person can accept after signing in."


def _revoke(actor: Actor, form: QueryDict) -> str:
    invitation_id = id_read(form, "invitation", "invitation")
    invitation_revoke(actor=actor, invitation_id=invitation_id, now=timezone.now())
    return "Invitation withdrawn."


def _role(actor: Actor, form: QueryDict) -> str:
    member = membership_role_set(
        actor=actor,
        membership_id=id_read(form, "membership", "membership"),
        role=form.get("role", ""),
        now=timezone.now(),
    )
    return f"{member.user.username} is now {Role(member.role).label.lower()}."


def _remove(actor: Actor, form: QueryDict) -> str:
    membership_remove(
        actor=actor, membership_id=id_read(form, "membership", "membership"), now=timezone.now()
    )
    return "Member removed."


def _question(actor: Actor, form: QueryDict) -> Confirmation | None:
    """Before a member is removed, a project loses its only lead, or is closed."""
    if CONFIRMED_FIELD in form:
        return None
    act = form.get("act")
    if act in ("close", "disable"):
        asked = _close_question if act == "close" else _disable_question
        return asked(actor, form)
    if act not in ("remove", "role"):
        return None
    membership_id = id_read(form, "membership", "membership")
    found = Membership.objects.filter(tenant_id=actor.tenant_id, id=membership_id)
    member = found.exclude(project=None).select_related("user", "project").first()
    if member is None or member.project is None or not actor.may_lead(member.project.id):
        return None
    keeps = form.get("act") == "role" and form.get("role") == Role.LEAD
    if member.role == Role.LEAD and not keeps and leads_of(member.project.id) == 1:
        # Only tenant admins may do it; the service refuses others, with the ways out.
        return _lead_question(actor, member, member.project) if actor.is_tenant_admin else None
    return _remove_question(actor, member) if form.get("act") == "remove" else None


def _disable_question(actor: Actor, form: QueryDict) -> Confirmation:
    username = form.get("username", "")
    user = members_of(actor).filter(username=username).first()
    if user is None:
        raise missing("person", "username")
    return Confirmation(
        title=f"Disable {user.display_name}?",
        lost=(
            f"They can't open {actor.tenant_slug} from their next request on, also not by tokens.",
            "Their roles stay and count again when you enable them.",
            "What they have planned is cancelled within a minute. What runs ends at its time and is charged.",
        ),
        button=f"Disable {user.display_name}",
        back=f"/t/{actor.tenant_slug}/people",
    )


def _disabled(actor: Actor) -> list[User]:
    """The disabled people of the tenant, for its admins."""
    if not actor.is_tenant_admin:
        return []
    known = KnownPerson.objects.filter(tenant_id=actor.tenant_id, disabled__isnull=False)
    return list(members_of(actor).filter(id__in=known.values("user_id")).order_by("username"))


def _enabled(actor: Actor, form: QueryDict, *, is_enabled: bool) -> str:
    user = member_enabled_set(
        actor=actor,
        username=form.get("username", ""),
        is_enabled=is_enabled,
        now=timezone.now(),
    )
    return f"{user.display_name} is {'enabled' if is_enabled else 'disabled'}."


def _lead_question(actor: Actor, member: Membership, project: Project) -> Confirmation:
    return Confirmation(
        title=f"Leave {project.name} without a lead?",
        lost=(
            f"{member.user.display_name} is its only lead.",
            "Nobody in the project can then invite people, set roles or see its budget as lead:"
            " only the organisation's admins can.",
        ),
        button=f"Leave {project.name} without a lead",
        back=f"/t/{actor.tenant_slug}/people",
    )


def _remove_question(actor: Actor, member: Membership) -> Confirmation:
    project = member.project.name if member.project else actor.tenant_slug
    elsewhere = Membership.objects.filter(tenant_id=actor.tenant_id, user=member.user)
    others = elsewhere.exclude(id=member.id).count()
    rest = (
        f"They keep {counted(others, 'other role')} in the organisation."
        if others
        else "It is their only role in the organisation: they can't open it, and their tokens stop."
    )
    return Confirmation(
        title=f"Remove {member.user.display_name} from {project}?",
        lost=(
            f"They can't see or book in {project} from their next request on. {rest}",
            f"What they have planned in {project} is cancelled within a minute. What runs ends at"
            " its time and is charged to the project.",
            "To undo this, invite them again; they have to accept. Cancelled bookings stay so.",
        ),
        button=f"Remove {member.user.display_name} from {project}",
        back=f"/t/{actor.tenant_slug}/people",
    )


def _close_question(actor: Actor, form: QueryDict) -> Confirmation | None:
    found = Project.objects.filter(tenant_id=actor.tenant_id, slug=form.get("project", ""), is_open=True)
    project = found.first()
    if project is None or not actor.is_tenant_admin:
        return None
    people = people_count(Membership.objects.filter(project=project))
    return Confirmation(
        title=f"Close {project.name}?",
        lost=(
            f"{people} {'person' if people == 1 else 'people'} with a role in it, and the admins, can't"
            " book in it any more.",
            "What is planned in it is cancelled within a minute. What runs ends at its time and is"
            " charged. You can reopen the project; cancelled bookings don't return.",
        ),
        button=f"Close {project.name} for {people} {'person' if people == 1 else 'people'}",
        back=f"/t/{actor.tenant_slug}/people",
    )


def _project(actor: Actor, form: QueryDict) -> str:
    project = project_create(
        actor=actor, slug=form.get("slug", ""), name=form.get("name", ""), now=timezone.now()
    )
    return f"{project.name} is ready. Invite its people, then set its quota and budget."


def _open(actor: Actor, form: QueryDict, *, is_open: bool) -> str:
    project = project_open_set(actor=actor, slug=form.get("project", ""), is_open=is_open, now=timezone.now())
    done = "open again" if is_open else "closed; what is planned in it is cancelled"
    return f"{project.name} is {done}."
