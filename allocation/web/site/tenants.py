"""The operators' page of tenants and accounts."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.queries.limits.use_now import TenantSummary, tenant_summaries
from billing.price_books import currency_latest
from billing.rules import money_text
from tenants.models import Membership, Role, Tenant, User
from tenants.platform.errors import missing
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.queries import admins_invited, tenant_counts
from tenants.rules.operator_roles import Area
from tenants.services import (
    NewAccount,
    account_create,
    admin_invite,
    gpus_text,
    tenant_create,
    tenant_open_set,
)
from tenants.web.frame import operator_page


@dataclass(frozen=True, slots=True)
class UseBar:
    """GPUs in use and guaranteed, in words and in percent of the largest on the page. `cores`: those
    of hosts in words, empty without any."""

    words: str
    in_use: str
    used: float
    guaranteed: float
    cores: str


@dataclass(frozen=True, slots=True)
class TenantRow:
    """An organisation with its admins, invitations, the bar of its use, and its money."""

    summary: TenantSummary
    admins: tuple[str, ...]
    invited: tuple[str, ...]
    bar: UseBar
    spent: str
    held: str


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.PEOPLE)
def ops_tenants(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows tenants and admins; POST creates, opens and closes tenants and creates accounts."""
    refusal = None
    if request.method == "POST":
        if (question := _question(request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(
            request,
            {
                "create": lambda form: _create(operator, form),
                "open": lambda form: _open(operator, form, is_open=True),
                "close": lambda form: _open(operator, form, is_open=False),
                "admin": lambda form: _admin(operator, form),
                "account": lambda form: _account(operator, form),
            },
        )
        if refusal is None:
            return redirect("ops-tenants")
    admins: dict[object, list[Membership]] = {}
    for each in Membership.objects.filter(role=Role.TENANT_ADMIN).select_related("user"):
        admins.setdefault(each.tenant_id, []).append(each)
    invited: dict[object, list[str]] = {}
    for tenant_id, invitee in admins_invited(timezone.now()):
        invited.setdefault(tenant_id, []).append(invitee)
    summaries = tenant_summaries(timezone.now())
    currency = currency_latest()
    most = max((max(each.guaranteed, each.used) for each in summaries), default=0)
    context = {
        "rows": [
            TenantRow(
                each,
                tuple(_admin_name(admin) for admin in admins.get(each.tenant.id, [])),
                tuple(invited.get(each.tenant.id, [])),
                _bar(each, most),
                money_text(each.spent, currency),
                money_text(each.held, currency),
            )
            for each in summaries
        ],
        "refusal": refusal,
        "tenant_typed": request.POST if request.POST.get("act") == "create" else {},
        "account_typed": request.POST if request.POST.get("act") == "account" else {},
    }
    return render(request, "tenants/ops_tenants.html", context, status=422 if refusal else 200)


def _bar(summary: TenantSummary, most: int) -> UseBar:
    used, most_used = gpus_text(summary.used), most or 1
    words = f"{used} of {gpus_text(summary.guaranteed)} guaranteed"
    cores = ""
    if summary.cores or summary.cores_used:
        cores = f"{gpus_text(summary.cores_used)} of {gpus_text(summary.cores)} CPU cores guaranteed"
    return UseBar(words, used, 100 * summary.used / most_used, 100 * summary.guaranteed / most_used, cores)


def _admin_name(admin: Membership) -> str:
    user = admin.user
    return user.display_name if user.is_active else f"{user.display_name} (account closed)"


def _create(operator: User, form: QueryDict) -> str:
    tenant = tenant_create(
        operator=operator,
        slug=form.get("slug", ""),
        name=form.get("name", ""),
        admin=form.get("username", ""),
        now=timezone.now(),
    )
    return f"{tenant.name} created. Next, set its quota; its admin creates projects."


def _open(operator: User, form: QueryDict, *, is_open: bool) -> str:
    tenant = _tenant(form)
    tenant_open_set(operator=operator, tenant=tenant, is_open=is_open, now=timezone.now())
    return f"{tenant.name} is {'open again' if is_open else 'closed: its members no longer have access'}."


def _admin(operator: User, form: QueryDict) -> str:
    tenant = _tenant(form)
    invitation = admin_invite(operator=operator, tenant=tenant, to=form.get("to", ""), now=timezone.now())
    return f"Invited {invitation.invitee} as admin of {tenant.name}."


def _question(form: QueryDict) -> Confirmation | None:
    """Returns the confirmation before a tenant is closed."""
    if form.get("act") != "close" or CONFIRMED_FIELD in form:
        return None
    tenant = _tenant(form)
    counts = tenant_counts(tenant.id, timezone.now())
    return Confirmation(
        title=f"Close {tenant.name}?",
        lost=(
            f"{_count(counts.people, 'person', 'people')} will lose access.",
            f"{_count(counts.tokens, 'API token', 'API tokens')}: will stop working.",
            f"{_count(counts.projects, 'project', 'projects')} and all data are kept. Existing "
            "bookings continue and are charged; reopen the organisation to cancel them.",
        ),
        button=f"Close {tenant.name} for {_count(counts.people, 'person', 'people')}",
        back="/ops/tenants",
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _account(operator: User, form: QueryDict) -> str:
    account = NewAccount(
        username=form.get("username", ""),
        name=form.get("name", ""),
        email=form.get("email", ""),
        password=form.get("password", ""),
    )
    user = account_create(operator=operator, account=account, now=timezone.now())
    return f"Account {user.username} created. An organisation admin can now invite them."


def _tenant(form: QueryDict) -> Tenant:
    tenant = Tenant.objects.filter(id=id_read(form, "tenant", "tenant")).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    return tenant


urlpatterns = [path("ops/tenants", ops_tenants, name="ops-tenants")]
