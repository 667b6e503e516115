"""Quotas as pages: a tenant splits its classes among projects, the platform among tenants."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor, access_project, require_tenant_admin
from tenants.errors import Refused, missing
from tenants.models import Project, Tenant, User
from tenants.queries import ClassShares, ShareRow, project_shares, tenant_shares
from tenants.services import (
    Share,
    gpus_text,
    quota_more_set,
    quota_set,
    tenant_quota_more_set,
    tenant_quota_set,
    units_read,
)
from tenants.web.acts import Act, act_run, id_read
from tenants.web.frame import operator_page, tenant_page
from tenants.web.shares_more import MoreShown, cap_words, more_read, more_shown, more_words


@dataclass(frozen=True, slots=True)
class RowShown:
    """A share for people: GPUs as text, and how long its bar is, in percent of the scale."""

    owner: Project | Tenant
    guaranteed: str
    borrow: str
    lend: str
    limit: str
    guaranteed_percent: str
    limit_percent: str


@dataclass(frozen=True, slots=True)
class ClassShown:
    """One class's card. All bars of a page have one scale, so that lengths compare."""

    slug: str
    label: str
    total: RowShown | None
    rows: tuple[RowShown, ...]
    split: str
    free: str
    more: tuple[MoreShown, ...]
    cap: str


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def quotas(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What each project is sure of and may use at most; tenant admins change it."""
    refusal = None
    if request.method == "POST":
        require_tenant_admin(actor)
        acts: dict[str, Act] = {
            "set": lambda form: _project_set(actor, form),
            "more": lambda form: _project_more(actor, form),
        }
        refusal = act_run(request, acts)
        if refusal is None:
            return redirect("quotas", tenant=actor.tenant_slug)
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    tenant = Tenant.objects.get(id=actor.tenant_id)
    context = {
        "classes": _shown(project_shares(tenant, projects), _typed(request, refusal)),
        "may_change": actor.is_tenant_admin,
        "refusal": refusal,
        "typed": request.POST,
    }
    return render(request, "tenants/quotas.html", context, status=422 if refusal else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_quotas(request: HttpRequest, operator: User) -> HttpResponse:
    """What each tenant is sure of and may use at most."""
    refusal = None
    if request.method == "POST":
        acts: dict[str, Act] = {
            "set": lambda form: _tenant_set(operator, form),
            "more": lambda form: _tenant_more(operator, form),
        }
        refusal = act_run(request, acts)
        if refusal is None:
            return redirect("ops-quotas")
    context = {
        "classes": _shown(tenant_shares(), _typed(request, refusal)),
        "may_change": True,
        "refusal": refusal,
        "typed": request.POST,
    }
    return render(request, "tenants/ops_quotas.html", context, status=422 if refusal else 200)


def _project_set(actor: Actor, form: QueryDict) -> str:
    project = access_project(actor, form.get("project", ""), "project")
    share = _share_read(form)
    quota_set(
        actor=actor,
        project=project,
        gpu_class=form.get("gpu_class", ""),
        share=share,
        now=timezone.now(),
    )
    return _sentence(project.name, share)


def _tenant_set(operator: User, form: QueryDict) -> str:
    tenant = Tenant.objects.filter(id=id_read(form, "tenant", "tenant")).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    share = _share_read(form)
    tenant_quota_set(
        operator=operator,
        tenant=tenant,
        gpu_class=form.get("gpu_class", ""),
        share=share,
        now=timezone.now(),
    )
    return _sentence(tenant.name, share)


def _project_more(actor: Actor, form: QueryDict) -> str:
    project = access_project(actor, form.get("project", ""), "project")
    more, gpu_class = more_read(form), form.get("gpu_class", "")
    quota_more_set(actor=actor, project=project, gpu_class=gpu_class, more=more, now=timezone.now())
    return more_words(project.name, more)


def _tenant_more(operator: User, form: QueryDict) -> str:
    tenant = Tenant.objects.filter(id=id_read(form, "tenant", "tenant")).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    more, gpu_class = more_read(form), form.get("gpu_class", "")
    tenant_quota_more_set(
        operator=operator, tenant=tenant, gpu_class=gpu_class, more=more, now=timezone.now()
    )
    return more_words(tenant.name, more)


def _typed(request: HttpRequest, refusal: Refused | None) -> QueryDict | None:
    """What was typed into a form of weights and caps that was refused."""
    return request.POST if refusal and request.POST.get("act") == "more" else None


def _share_read(form: QueryDict) -> Share:
    borrow, lend = (form.get(name, "").strip() for name in ("borrow", "lend"))
    return Share(
        guaranteed_units=units_read(form.get("guaranteed", ""), param="guaranteed"),
        borrow_limit_units=units_read(borrow, param="borrow") if borrow else None,
        lend_limit_units=units_read(lend, param="lend") if lend else None,
    )


def _sentence(name: str, share: Share) -> str:
    borrow, lend = share.borrow_limit_units, share.lend_limit_units
    more = "what there is" if borrow is None else f"at most {gpus_text(borrow)}"
    idle = "all that is idle" if lend is None else f"at most {gpus_text(lend)}"
    sure = gpus_text(share.guaranteed_units)
    return f"{name}: {sure} guaranteed, borrows {more}, lends {idle}."


def _shown(classes: list[ClassShares], typed: QueryDict | None) -> list[ClassShown]:
    rows = [row for each in classes for row in (*each.rows, *([each.total] if each.total else []))]
    scale = max((max(row.guaranteed_units, row.limit_units or 0) for row in rows), default=0)
    return [
        ClassShown(
            slug=each.gpu_class.slug,
            label=each.gpu_class.label,
            total=_row(each.total, scale) if each.total else None,
            rows=tuple(_row(row, scale) for row in each.rows),
            split=gpus_text(each.split_units),
            free=gpus_text(max(0, each.total.guaranteed_units - each.split_units))
            if each.total
            else "",
            more=more_shown(
                each, typed if typed and typed.get("gpu_class") == each.gpu_class.slug else None
            ),
            cap=_cap(each.total),
        )
        for each in classes
    ]


def _cap(total: ShareRow | None) -> str:
    quota = total.quota if total else None
    return cap_words(quota.cap_gpu_hours, quota.cap_days) if quota else ""


def _row(row: ShareRow, scale: int) -> RowShown:
    return RowShown(
        owner=row.owner,
        guaranteed=gpus_text(row.guaranteed_units),
        borrow="" if row.borrow_limit_units is None else gpus_text(row.borrow_limit_units),
        lend="" if row.lend_limit_units is None else gpus_text(row.lend_limit_units),
        limit="" if row.limit_units is None else gpus_text(row.limit_units),
        guaranteed_percent=_percent(row.guaranteed_units, scale),
        limit_percent="" if row.limit_units is None else _percent(row.limit_units, scale),
    )


def _percent(units: int, scale: int) -> str:
    return f"{100 * units / scale:.2f}" if scale else "0"
