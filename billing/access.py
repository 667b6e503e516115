"""Who may see and set which budgets and campaigns. Foreign and hidden ones are missing alike."""

from uuid import UUID

from django.db.models import Q, QuerySet

from billing.models import Budget, Campaign
from billing.queries import OWNERS
from billing.rules import BudgetOwner
from billing.words import refusal_text
from tenants.access import Actor, access_project
from tenants.models import Membership, Project, Role, User
from tenants.platform.errors import denied, invalid, missing
from tenants.services.labs.labs import lab_read

LEADERS = (Role.LEAD, Role.TENANT_ADMIN)


def access_owner(actor: Actor, project: str, campaign: str, person: str, lab: str = "") -> BudgetOwner:
    """The owner of a budget by the slugs of project, campaign and lab and the name of a person;
    empty names leave a level out.

    Raises:
        Refused: `not_found` or `bad_level`.
    """
    if lab:
        if project or campaign or person:
            raise invalid("bad_level", refusal_text("level_lab"), "lab")
        return BudgetOwner(actor.tenant_id, lab_id=lab_read(actor, lab, "lab").id)
    if not project:
        if campaign or person:
            raise invalid("bad_level", refusal_text("level_project"), "project")
        return BudgetOwner(actor.tenant_id)
    if campaign and person:
        raise invalid("bad_level", refusal_text("level_campaign"), "person")
    found = access_project(actor, project, "project")
    if campaign:
        owner = access_campaign(actor, found, campaign, "campaign")
        return BudgetOwner(actor.tenant_id, found.id, campaign_id=owner.id)
    if person:
        return BudgetOwner(actor.tenant_id, found.id, person_id=_member(actor, found, person))
    return BudgetOwner(actor.tenant_id, found.id)


def access_campaign(actor: Actor, project: Project, slug: str, param: str | None) -> Campaign:
    """A campaign of a project that the actor may see.

    Raises:
        Refused: `not_found`.
    """
    found = Campaign.objects.filter(tenant_id=actor.tenant_id, project=project, slug=slug).first()
    if found is None:
        raise missing("campaign", param)
    return found


def require_budget_right(actor: Actor, owner: BudgetOwner) -> None:
    """Raises Refused `not_allowed` unless the actor may set the owner's budget: a project's lead
    those below the project, a tenant's admin all."""
    if actor.is_tenant_admin:
        return
    is_below = owner.campaign_id is not None or owner.person_id is not None
    if owner.project_id is None or not is_below:
        raise denied(refusal_text("budget_admins"))
    if not actor.may_lead(owner.project_id):
        raise denied(refusal_text("budget_leads"))


def budgets_visible(actor: Actor) -> QuerySet[Budget]:
    """The budgets that the actor may see: the tenant's, those of its projects with their labs and
    campaigns, and of people its own, or all in projects that the actor leads."""
    budgets = Budget.objects.filter(tenant_id=actor.tenant_id)
    if actor.is_tenant_admin:
        return budgets
    led = [key for key, role in actor.roles.items() if role in LEADERS]
    labs = Project.objects.filter(id__in=list(actor.roles), lab__isnull=False).values("lab")
    mine = Q(level="tenant") | Q(project_id__in=list(actor.roles)) | Q(lab__in=labs)
    return budgets.filter(mine).filter(Q(person=None) | Q(person_id=actor.user_id) | Q(project_id__in=led))


def access_budget(actor: Actor, budget_id: UUID) -> Budget:
    """A budget that the actor may see.

    Raises:
        Refused: `not_found`.
    """
    found = budgets_visible(actor).filter(id=budget_id).select_related("account", *OWNERS).first()
    if found is None:
        raise missing("budget")
    return found


def people_of(budget: Budget) -> "QuerySet[User]":
    """The people who may see the budget: who it concerns, and the admins of its organisation.

    Nobody for a budget of the platform, which is its operators'.
    """
    members = Membership.objects.filter(tenant=budget.tenant)
    if budget.person_id is not None:
        leads = Q(role=Role.LEAD, project=budget.project_id)
        members = members.filter(Q(role=Role.TENANT_ADMIN) | leads | Q(user=budget.person_id))
    elif budget.project_id is not None:
        members = members.filter(Q(role=Role.TENANT_ADMIN) | Q(project=budget.project_id))
    elif budget.lab_id is not None:
        members = members.filter(Q(role=Role.TENANT_ADMIN) | Q(project__lab=budget.lab_id))
    return User.objects.filter(is_active=True, id__in=members.values("user"))


def _member(actor: Actor, project: Project, username: str) -> int:
    found = Membership.objects.filter(
        Q(project=project) | Q(project=None),
        tenant_id=actor.tenant_id,
        user__username=username,
    ).values_list("user_id", flat=True)
    person = found.first()
    if person is None:
        raise missing("member of this project", "person")
    return person


def access_platform_budget(budget_id: UUID) -> Budget:
    """The budget of the platform, for operators. Raises Refused `not_found`."""
    found = Budget.objects.filter(id=budget_id, level=Budget.Level.PLATFORM).first()
    if found is None:
        raise missing("budget")
    return found
