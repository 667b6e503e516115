"""The pages of quotas: of the projects of an organisation, and of all organisations."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.queries.fleet.loans import loans_text
from allocation.queries.limits.use_now import UseNow, use_now
from tenants.access import Actor, access_project, require_tenant_admin
from tenants.lab_queries import labs_led, projects_seen
from tenants.models import Project, Tenant, Tier, User
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.queries import ClassShares, ShareRow, project_shares, tenant_shares
from tenants.services import (
    Share,
    gpus_text,
    quota_more_set,
    quota_set,
    tenant_quota_more_set,
    tenant_quota_set,
)
from tenants.services.labs.limits import project_to_limit
from tenants.web.frame import operator_page, tenant_page
from tenants.web.parts import counted
from tenants.web.quotas import (
    RefusedForm,
    Units,
    class_cards,
    share_read,
    share_text,
    weights_caps_read,
    weights_caps_text,
)

Uses = Mapping[tuple[UUID, str], UseNow]


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def quotas(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the quotas of projects; tenant admins change them, lab leads those of their labs."""
    refusal, led = None, labs_led(actor)
    tenant, projects = Tenant.objects.get(id=actor.tenant_id), list(projects_seen(actor, led))
    shares = project_shares(tenant, projects)
    uses = use_now("project_id", timezone.now(), actor.tenant_id)
    if request.method == "POST":
        if not led:
            require_tenant_admin(actor)
        if (asked := cut_question(request.POST, shares, uses, f"/t/{tenant.slug}/quotas")) is not None:
            return confirm_page(request, asked)
        acts: dict[str, FormAction] = {
            "set": lambda form: _project_set(actor, form),
            "more": lambda form: _project_more(actor, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("quotas", tenant=actor.tenant_slug)
    changed = [each for each in projects if actor.is_tenant_admin or each.lab_id in led]
    context = {
        "classes": class_cards(shares, "project", _sent(request, refusal), _units(uses), changed),
        "loans": loans_text(Tier.objects.order_by("-priority", "slug")),
        "may_change": actor.is_tenant_admin,
        "owner_key": "project",
        "refusal": refusal,
    }
    return render(request, "tenants/quotas.html", context, status=422 if refusal else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_quotas(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the quotas of tenants; operators change them."""
    refusal, shares, uses = None, tenant_shares(), use_now("tenant_id", timezone.now())
    if request.method == "POST":
        if (asked := cut_question(request.POST, shares, uses, request.path)) is not None:
            return confirm_page(request, asked)
        acts: dict[str, FormAction] = {
            "set": lambda form: _tenant_set(operator, form),
            "more": lambda form: _tenant_more(operator, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("ops-quotas")
    context = {
        "classes": class_cards(shares, "tenant", _sent(request, refusal), _units(uses)),
        "may_change": True,
        "owner_key": "tenant",
        "refusal": refusal,
    }
    return render(request, "tenants/ops_quotas.html", context, status=422 if refusal else 200)


def cut_question(
    form: QueryDict, shares: Iterable[ClassShares], uses: Uses, back: str
) -> Confirmation | None:
    """Returns the question before a share is lowered whose owner has bookings in the class."""
    if form.get("act") != "set" or CONFIRMED_FIELD in form:
        return None
    card = next((each for each in shares if each.gpu_class.slug == form.get("gpu_class")), None)
    row = next((each for each in card.rows if _is_named(each, form)), None) if card else None
    if card is None or row is None:
        return None
    try:
        after = share_read(form)
    except Refused:
        return None
    used = uses.get((row.owner.id, card.gpu_class.slug), UseNow())
    lost = (*_lost_guarantee(row, after, used), *_lost_limit(row, after, used))
    if not lost:
        return None
    if used.planned:
        whose = "1 booking has" if used.planned == 1 else f"{used.planned} bookings have"
        lost = (*lost, f"{whose} a planned start, which can become later.")
    name = f"{row.owner.name} on {card.gpu_class.label}"
    return Confirmation(f"Lower the quota of {name}?", lost, "Lower the quota", back, "Keep the quota")


def _is_named(row: ShareRow, form: QueryDict) -> bool:
    if isinstance(row.owner, Project):
        return row.owner.slug == form.get("project")
    return str(row.owner.id) == form.get("tenant")


def _lost_guarantee(row: ShareRow, after: Share, used: UseNow) -> tuple[str, ...]:
    before, less = row.guaranteed_units, after.guaranteed_units
    if less >= before or not (used.running or used.planned):
        return ()
    cut = f"The guarantee falls from {gpus_text(before)} to {counted(gpus_text(less), 'GPU')}."
    lent = max(0, min(used.used - used.borrowed, before) - less)
    if not lent:
        return (cut,)
    return (
        f"{cut} Of {gpus_text(used.used)} in use, {gpus_text(lent)} more would be borrowed: their "
        "owners can have bookings paused there, in tiers that allow it.",
    )


def _lost_limit(row: ShareRow, after: Share, used: UseNow) -> tuple[str, ...]:
    borrow = after.borrow_limit_units
    less = None if borrow is None else after.guaranteed_units + borrow
    before = row.limit_units
    if less is None or (before is not None and less >= before):
        return ()
    if not (used.running or used.planned):
        return ()
    was = "no limit" if before is None else counted(gpus_text(before), "GPU")
    cut = f"At most {counted(gpus_text(less), 'GPU')} with borrowed ones; before: {was}."
    if used.used <= less:
        return (cut,)
    running = "1 booking" if used.running == 1 else f"{used.running} bookings"
    return (
        f"{cut} In use now: {gpus_text(used.used)}, by {running}. What runs stays; nothing else "
        "starts until the use is below the limit.",
    )


def _units(uses: Uses) -> dict[tuple[UUID, str], Units]:
    return {key: Units(each.used, each.borrowed) for key, each in uses.items()}


def _sent(request: HttpRequest, refusal: Refused | None) -> RefusedForm | None:
    return RefusedForm(request.POST, refusal) if refusal else None


def _project_set(actor: Actor, form: QueryDict) -> str:
    project = project_to_limit(actor, form.get("project", ""))
    share = share_read(form)
    quota_set(
        actor=actor,
        project=project,
        gpu_class=form.get("gpu_class", ""),
        share=share,
        now=timezone.now(),
    )
    return share_text(project.name, share)


def _tenant_set(operator: User, form: QueryDict) -> str:
    tenant = Tenant.objects.filter(id=id_read(form, "tenant", "tenant")).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    share = share_read(form)
    tenant_quota_set(
        operator=operator,
        tenant=tenant,
        gpu_class=form.get("gpu_class", ""),
        share=share,
        now=timezone.now(),
    )
    return share_text(tenant.name, share)


def _project_more(actor: Actor, form: QueryDict) -> str:
    project = access_project(actor, form.get("project", ""), "project")
    more, gpu_class = weights_caps_read(form), form.get("gpu_class", "")
    quota_more_set(actor=actor, project=project, gpu_class=gpu_class, more=more, now=timezone.now())
    return weights_caps_text(project.name, more)


def _tenant_more(operator: User, form: QueryDict) -> str:
    tenant = Tenant.objects.filter(id=id_read(form, "tenant", "tenant")).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    more, gpu_class = weights_caps_read(form), form.get("gpu_class", "")
    tenant_quota_more_set(
        operator=operator, tenant=tenant, gpu_class=gpu_class, more=more, now=timezone.now()
    )
    return weights_caps_text(tenant.name, more)


urlpatterns = [
    path("t/<slug:tenant>/quotas", quotas, name="quotas"),
    path("ops/quotas", ops_quotas, name="ops-quotas"),
]
