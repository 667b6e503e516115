"""The page of members, roles, invitations and projects."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.models import Invitation, KnownPerson, Membership, Project, Role, User
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.queries import (
    ProjectPeople,
    admins_of,
    invitations_of,
    leads_of,
    people_count,
    people_of,
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


@dataclass(frozen=True, slots=True)
class InviteForm:
    """The invite form's values: empty, or as typed when it was refused."""

    to: str = ""
    error: str = ""
    role: str = Role.RESEARCHER


@dataclass(frozen=True, slots=True)
class ProjectCard:
    """A project's card: members, invitations and the invite form."""

    group: ProjectPeople
    may_change: bool
    invited: Sequence[Invitation]
    invite: InviteForm


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def people(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows members by project. Leads manage their projects, tenant admins all of them."""
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
    invited = _invited(actor)
    wanted = request.GET.get("q", "").replace("\x00", "").strip()[:MAX_WANTED]
    groups = people_of(projects, wanted)
    context = {
        "wanted": wanted,
        "groups": [
            ProjectCard(
                group,
                actor.may_lead(group.project.id),
                invited.get(group.project.slug, []),
                _typed_invite(request.POST, refusal, ("project", group.project.slug)),
            )
            for group in groups
            if group.members or not wanted
        ],
        "new_admin": _typed_invite(request.POST, refusal, ("role", Role.TENANT_ADMIN)),
        "new_project": {**request.POST.dict(), "refusal": refusal}
        if refusal and request.POST.get("act") == "project"
        else {},
        "invited_admins": invited.get("", []),
        "disabled": _disabled(actor),
        "admins": admins_of(actor.tenant_id),
        "roles": [each for each in Role.choices if each[0] != Role.TENANT_ADMIN],
        "refusal": None if request.POST.get("act") in ("invite", "project") else refusal,
    }
    status = 422 if refusal else 200
    return render(request, "tenants/people.html", context, status=status)


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


def _typed_invite(form: QueryDict, refusal: Refused | None, to: tuple[str, str]) -> InviteForm:
    """Returns the typed values of the refused invite form for `to` (a project or role)."""
    key, value = to
    if refusal is None or form.get("act") != "invite" or form.get(key) != value:
        return InviteForm()
    return InviteForm(form.get("to", ""), refusal.sentence, form.get("role", ""))


def _invited(actor: Actor) -> dict[str, list[Invitation]]:
    """Returns visible invitations by project slug; tenant admins' under ""."""
    found: dict[str, list[Invitation]] = {}
    for each in invitations_of(actor.tenant_id, timezone.now()):
        if may_see(actor, each):
            found.setdefault(each.project.slug if each.project else "", []).append(each)
    return found


def _invite(actor: Actor, form: QueryDict) -> str:
    invitation = invitation_create(
        actor=actor,
        to=form.get("to", ""),
        role=form.get("role", ""),
        project=form.get("project") or None,
        now=timezone.now(),
    )
    invited = f"Invited {invitation.invitee} as {Role(invitation.role).label.lower()}."
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
            " only the tenant's admins can.",
        ),
        button=f"Leave {project.name} without a lead",
        back=f"/t/{actor.tenant_slug}/people",
    )


def _remove_question(actor: Actor, member: Membership) -> Confirmation:
    project = member.project.name if member.project else actor.tenant_slug
    elsewhere = Membership.objects.filter(tenant_id=actor.tenant_id, user=member.user)
    others = elsewhere.exclude(id=member.id).count()
    rest = (
        f"They keep {counted(others, 'other role')} in the tenant."
        if others
        else "It is their only role in the tenant: they can't open it, and their tokens stop."
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
