"""The quota pages of a tenant's projects and of the platform's tenants."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor, access_project, require_tenant_admin
from tenants.lab_queries import labs_led, projects_seen
from tenants.models import Project, Tenant, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.queries import ClassShares, ShareRow, project_shares, tenant_shares
from tenants.services import (
    Share,
    ShareMore,
    gpus_text,
    quota_more_set,
    quota_set,
    tenant_quota_more_set,
    tenant_quota_set,
    units_read,
)
from tenants.services.labs.limits import project_to_limit
from tenants.web.frame import operator_page, tenant_page


@dataclass(frozen=True, slots=True)
class RefusedForm:
    """A refused form, shown again as typed."""

    form: QueryDict
    refusal: Refused


@dataclass(frozen=True, slots=True)
class ShareInput:
    """An editable cell; `title` is the column's name, `label` the full description."""

    name: str
    title: str
    label: str
    value: str
    placeholder: str
    is_wrong: bool


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A quota with GPUs as text and bar widths in percent of the scale."""

    owner: Project | Tenant
    guaranteed: str
    borrow: str
    lend: str
    limit: str
    guaranteed_percent: str
    limit_percent: str
    inputs: tuple[ShareInput, ...] = ()
    key: str = ""
    owner_value: str = ""
    may_change: bool = False

    @property
    def words(self) -> str:
        """Returns the bar as text."""
        limit = (
            f"at most {self.limit} including borrowed GPUs" if self.limit else "no limit of its own"
        )
        return f"{self.guaranteed} guaranteed, {limit}"


@dataclass(frozen=True, slots=True)
class WeightCapRow:
    """The weight and cap of an owner in a form; `key` identifies the owner."""

    key: str
    name: str
    weight: str
    cap_gpu_hours: str
    cap_days: str
    cap_carries: bool


@dataclass(frozen=True, slots=True)
class ClassCard:
    """The card of a class. All bars of a page share one scale, so that lengths compare."""

    slug: str
    label: str
    total: QuotaRow | None
    rows: tuple[QuotaRow, ...]
    split: str
    free: str
    more: tuple[WeightCapRow, ...]
    more_is_open: bool
    cap: str

    @property
    def may_change(self) -> bool:
        """Returns whether the reader may change a row."""
        return any(row.may_change for row in self.rows)

    @property
    def borrows(self) -> str:
        """Returns the tenant's limit and its cap of GPU-hours as text."""
        limit = self.total.limit if self.total else ""
        words = f"at most {limit} including borrowed GPUs" if limit else "unlimited borrowing"
        return f"{words}, {self.cap}" if self.cap else words


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def quotas(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the quotas of projects; tenant admins change them, lab leads those of their labs."""
    refusal, led = None, labs_led(actor)
    if request.method == "POST":
        if not led:
            require_tenant_admin(actor)
        acts: dict[str, FormAction] = {
            "set": lambda form: _project_set(actor, form),
            "more": lambda form: _project_more(actor, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("quotas", tenant=actor.tenant_slug)
    projects = list(projects_seen(actor, led))
    changed = [each for each in projects if actor.is_tenant_admin or each.lab_id in led]
    tenant = Tenant.objects.get(id=actor.tenant_id)
    context = {
        "classes": _shown(
            project_shares(tenant, projects), "project", _sent(request, refusal), changed
        ),
        "may_change": actor.is_tenant_admin,
        "owner_key": "project",
        "refusal": refusal,
    }
    return render(request, "tenants/quotas.html", context, status=422 if refusal else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_quotas(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the quotas of tenants; operators change them."""
    refusal = None
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "set": lambda form: _tenant_set(operator, form),
            "more": lambda form: _tenant_more(operator, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("ops-quotas")
    context = {
        "classes": _shown(tenant_shares(), "tenant", _sent(request, refusal)),
        "may_change": True,
        "owner_key": "tenant",
        "refusal": refusal,
    }
    return render(request, "tenants/ops_quotas.html", context, status=422 if refusal else 200)


def _project_set(actor: Actor, form: QueryDict) -> str:
    project = project_to_limit(actor, form.get("project", ""))
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


def _sent(request: HttpRequest, refusal: Refused | None) -> RefusedForm | None:
    return RefusedForm(request.POST, refusal) if refusal else None


def _share_read(form: QueryDict) -> Share:
    borrow, lend = (form.get(name, "").strip() for name in ("borrow", "lend"))
    return Share(
        guaranteed_units=units_read(form.get("guaranteed", ""), param="guaranteed"),
        borrow_limit_units=units_read(borrow, param="borrow") if borrow else None,
        lend_limit_units=units_read(lend, param="lend") if lend else None,
    )


def _sentence(name: str, share: Share) -> str:
    borrow, lend = share.borrow_limit_units, share.lend_limit_units
    more = "without a limit" if borrow is None else f"at most {gpus_text(borrow)}"
    idle = "all idle GPUs" if lend is None else f"at most {gpus_text(lend)}"
    sure = gpus_text(share.guaranteed_units)
    return f"{name}: {sure} guaranteed, borrows {more}, lends {idle}."


def _shown(
    classes: list[ClassShares],
    owner_key: str,
    sent: RefusedForm | None,
    changed: Collection[Project] | None = None,
) -> list[ClassCard]:
    """Returns the cards. The reader may change the rows of `changed` owners; None: all."""
    rows = [row for each in classes for row in (*each.rows, *([each.total] if each.total else []))]
    scale = max((max(row.guaranteed_units, row.limit_units or 0) for row in rows), default=0)
    return [
        ClassCard(
            slug=each.gpu_class.slug,
            label=each.gpu_class.label,
            total=_row(each.total, scale) if each.total else None,
            rows=tuple(
                replace(
                    _row_to_change(_row(row, scale), each.gpu_class.slug, owner_key, sent),
                    may_change=changed is None or row.owner in changed,
                )
                for row in each.rows
            ),
            split=gpus_text(each.split_units),
            free=gpus_text(max(0, each.total.guaranteed_units - each.split_units))
            if each.total
            else "",
            more=weights_caps_rows(each, _typed_more(each.gpu_class.slug, sent)),
            more_is_open=_typed_more(each.gpu_class.slug, sent) is not None,
            cap=_cap(each.total),
        )
        for each in classes
    ]


def _typed_more(gpu_class: str, sent: RefusedForm | None) -> QueryDict | None:
    """Returns the typed values of the class's weights and caps form if it was refused."""
    is_more = sent is not None and sent.form.get("act") == "more"
    return sent.form if sent and is_more and sent.form.get("gpu_class") == gpu_class else None


def _row_to_change(
    row: QuotaRow, gpu_class: str, owner_key: str, sent: RefusedForm | None
) -> QuotaRow:
    """Returns the row with its inputs, as typed if its form was refused."""
    owner = row.owner
    owner_value = owner.slug if isinstance(owner, Project) else str(owner.id)
    form = sent.form if sent else QueryDict()
    is_sent = form.get("act") not in (None, "more") and (
        (form.get("gpu_class"), form.get(owner_key)) == (gpu_class, owner_value)
    )
    param = sent.refusal.param if sent and is_sent else None
    wrong = param if param in ("borrow", "lend") else "guaranteed"
    inputs = (
        ("guaranteed", "Guaranteed", f"GPUs guaranteed to {owner.name}", row.guaranteed, ""),
        (
            "borrow",
            "Borrows",
            f"GPUs that {owner.name} can borrow on top; empty for no limit",
            row.borrow,
            "no limit",
        ),
        (
            "lend",
            "Lends",
            f"Idle GPUs of {owner.name} that others can borrow; empty for all",
            row.lend,
            "all",
        ),
    )
    return replace(
        row,
        key=f"{gpu_class}-{owner.slug}",
        owner_value=owner_value,
        inputs=tuple(
            ShareInput(
                name,
                title,
                label,
                form.get(name, "") if is_sent else value,
                placeholder,
                is_wrong=is_sent and name == wrong,
            )
            for name, title, label, value, placeholder in inputs
        ),
    )


def _cap(total: ShareRow | None) -> str:
    quota = total.quota if total else None
    return cap_words(quota.cap_gpu_hours, quota.cap_days) if quota else ""


def _row(row: ShareRow, scale: int) -> QuotaRow:
    return QuotaRow(
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


def weights_caps_read(form: QueryDict) -> ShareMore:
    """Reads the form. Raises Refused with the field."""
    weight = _whole(form, "weight")
    if weight is None:
        raise invalid("bad_share", "Enter a weight from 0 to 1000.", "weight")
    return ShareMore(
        weight=weight,
        cap_gpu_hours=_whole(form, "cap_gpu_hours"),
        cap_days=_whole(form, "cap_days"),
        cap_carries=form.get("cap_carries") == "1",
    )


def weights_caps_text(name: str, more: ShareMore) -> str:
    """Returns the confirmation of what was saved."""
    cap = cap_words(more.cap_gpu_hours, more.cap_days) or "no cap of GPU-hours"
    return f"{name}: weight {more.weight}, {cap}."


def cap_words(hours: int | None, days: int | None) -> str:
    """Returns `at most 500 GPU-hours in any 7 days`; empty without a cap."""
    if hours is None:
        return ""
    period = (
        "a calendar month (UTC)" if days is None else "a day" if days == 1 else f"any {days} days"
    )
    return f"at most {hours:,} GPU-hours in {period}"


def weights_caps_rows(shares: ClassShares, typed: QueryDict | None) -> tuple[WeightCapRow, ...]:
    """Returns a row for each owner with a quota; as typed where it was refused."""
    rows = []
    for row in shares.rows:
        quota = row.quota
        if quota is None:
            continue
        key = row.owner.slug if quota.project_id else str(row.owner.id)
        shown = WeightCapRow(
            key,
            row.owner.name,
            str(quota.weight),
            _text(quota.cap_gpu_hours),
            _text(quota.cap_days),
            quota.cap_carries,
        )
        if typed is not None and key in (typed.get("project"), typed.get("tenant")):
            shown = replace(
                shown,
                weight=typed.get("weight", "")[:12],
                cap_gpu_hours=typed.get("cap_gpu_hours", "")[:12],
                cap_days=typed.get("cap_days", "")[:12],
                cap_carries=typed.get("cap_carries") == "1",
            )
        rows.append(shown)
    return tuple(rows)


def _whole(form: QueryDict, name: str) -> int | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid("bad_share", "Enter a whole number, or leave it empty.", name)
    return int(text)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
