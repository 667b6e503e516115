"""Pages of service accounts: a list, and one with its tokens."""

from functools import partial
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.models import Membership, Project, Scope, ServiceAccount
from tenants.platform.errors import denied
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.services import whole_read
from tenants.services.credentials.service_accounts import (
    ROLES,
    SCOPES,
    ServiceToken,
    may_have_service_accounts,
    service_account_close,
    service_account_create,
    service_account_one,
    service_accounts_of,
    service_token_create,
    service_token_revoke,
    service_token_rotate,
    service_tokens_of,
)
from tenants.web.frame import tenant_page
from tenants.web.members.settings import LIFE_DEFAULT, OVERLAP_HOURS, token_state
from tenants.web.sessions import credential_of
from tenants.words import refusal_text


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def service_accounts(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the service accounts that the person manages; POST creates one."""
    if not may_have_service_accounts(actor):
        raise denied(refusal_text("service_account_managers"))
    refusal = None
    made: list[ServiceAccount] = []
    if request.method == "POST":
        acts: dict[str, FormAction] = {"create": lambda form: _create(request, actor, form, made)}
        refusal = form_action_run(request, acts)
        if made:
            return redirect("service-account", tenant=actor.tenant_slug, account_id=made[0].id)
    rows = list(service_accounts_of(actor))
    roles = Membership.objects.filter(user__in=[each.user_id for each in rows])
    held = {each.user_id: each.get_role_display() for each in roles}
    context = {
        "rows": [(each, held.get(each.user_id, "no role")) for each in rows],
        "projects": _projects(actor),
        "roles": [(each.value, each.label) for each in ROLES],
        "typed": request.POST if refusal else {},
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "tenants/service_accounts/list.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def service_account(request: HttpRequest, actor: Actor, account_id: UUID) -> HttpResponse:
    """Shows one service account with its tokens. The text of a new token is shown only once."""
    account = service_account_one(actor, account_id)
    refusal = None
    made: list[str] = []
    if request.method == "POST":
        if (question := _question(actor, account, request.POST)) is not None:
            return confirm_page(request, question)
        acts: dict[str, FormAction] = {
            "token": partial(_token, actor, account, made),
            "rotate": partial(_rotate, actor, account, made),
            "revoke": partial(_revoke, actor, account),
            "close": lambda _: _close(actor, account),
        }
        refusal = form_action_run(request, acts)
        if refusal is None and request.POST.get("act") == "close":
            return redirect("service-accounts", tenant=actor.tenant_slug)
        # No redirect with a new token: it would have to be stored in the session in clear text.
        if refusal is None and not made:
            return redirect("service-account", tenant=actor.tenant_slug, account_id=account.id)
    now, typed = timezone.now(), request.POST if refusal else QueryDict()
    chosen = typed.getlist("scope") if typed else list(SCOPES)
    context = {
        "account": account,
        "role": Membership.objects.filter(user_id=account.user_id).first(),
        "tokens": [(each, token_state(each, now)) for each in service_tokens_of(account)],
        "clear": made[0] if made else "",
        "name": typed.get("name", ""),
        "days": typed.get("days", LIFE_DEFAULT),
        "scopes": [(each.value, Scope(each).label, each in chosen) for each in SCOPES],
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "tenants/service_accounts/one.html", context, status=status)


def _create(request: HttpRequest, actor: Actor, form: QueryDict, made: list[ServiceAccount]) -> str:
    account = service_account_create(
        actor=actor,
        credential=credential_of(request),
        name=form.get("name", ""),
        project=form.get("project", ""),
        role=form.get("role", ""),
        now=timezone.now(),
    )
    made.append(account)
    return f"{account.name} created. Create its first token next."


def _token(actor: Actor, account: ServiceAccount, made: list[str], form: QueryDict) -> str:
    terms = ServiceToken(
        name=form.get("name", ""),
        days=whole_read(form.get("days", ""), param="days"),
        scopes=form.getlist("scope"),
    )
    token, clear = service_token_create(actor=actor, account_id=account.id, token=terms, now=timezone.now())
    made.append(clear)
    return f"Token {token.name} created. Copy it now; it is shown only once."


def _rotate(actor: Actor, account: ServiceAccount, made: list[str], form: QueryDict) -> str:
    token, clear = service_token_rotate(
        actor=actor,
        account_id=account.id,
        token_id=id_read(form, "token", "token"),
        overlap_hours=OVERLAP_HOURS,
        now=timezone.now(),
    )
    made.append(clear)
    return f"{token.name} replaced. The old token works for {OVERLAP_HOURS} hours more."


def _revoke(actor: Actor, account: ServiceAccount, form: QueryDict) -> str:
    token = service_token_revoke(
        actor=actor,
        account_id=account.id,
        token_id=id_read(form, "token", "token"),
        now=timezone.now(),
    )
    return f"{token.name} revoked. Programs that use it are now refused."


def _close(actor: Actor, account: ServiceAccount) -> str:
    service_account_close(actor=actor, account_id=account.id, now=timezone.now())
    return f"{account.name} closed. What it has planned is cancelled within a minute."


def _question(actor: Actor, account: ServiceAccount, form: QueryDict) -> Confirmation | None:
    """Returns the confirmation before an account is closed."""
    if form.get("act") != "close" or CONFIRMED_FIELD in form:
        return None
    return Confirmation(
        title=f"Close {account.name}?",
        lost=(
            "All its tokens are revoked, and programs that use them are refused.",
            "What it has planned is cancelled within a minute. What runs ends at its time and is"
            " charged; release what nobody needs.",
            "This can't be undone.",
        ),
        button=f"Close {account.name}",
        back=f"/t/{actor.tenant_slug}/settings/service-accounts/{account.id}",
    )


def _projects(actor: Actor) -> list[tuple[str, str]]:
    rows = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name", "id")
    return [(each.slug, each.name) for each in rows if actor.may_lead(each.id)]


urlpatterns = [
    path("t/<slug:tenant>/settings/service-accounts", service_accounts, name="service-accounts"),
    path(
        "t/<slug:tenant>/settings/service-accounts/<uuid:account_id>",
        service_account,
        name="service-account",
    ),
]
