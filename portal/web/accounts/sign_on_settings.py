"""The page on which a tenant's admin sets up single sign-on. The operators' process serves it."""

from functools import partial
from typing import cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.integrations.openid.fetch import ProviderFault
from portal.integrations.openid.provider import discover
from portal.words import refusal_text
from tenants.access import Actor, require_tenant_admin
from tenants.models import Project, Role, SignOnGroup, SignOnIdentity, Tenant, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.services.sign_on.providers import (
    Editor,
    Endpoints,
    ProviderTerms,
    group_add,
    group_remove,
    provider_endpoints_set,
    provider_of,
    provider_on_set,
    provider_set,
)
from tenants.web.frame import tenant_page
from tenants.web.step_up import step_up


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def sign_on_settings(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows and changes the provider of the admin's tenant, and the roles of its groups."""
    require_operators_process()
    require_tenant_admin(actor)
    with operator_tx():
        tenant = Tenant.objects.get(id=actor.tenant_id)
        return _page(request, Editor(tenant, actor.user_id))


def _page(request: HttpRequest, editor: Editor) -> HttpResponse:
    refusal = None
    if request.method == "POST":
        if (ask := step_up(request, cast(User, request.user))) is not None:
            return ask
        refusal = form_action_run(request, _acts(editor))
        if refusal is None:
            return redirect(request.path)
    tenant = editor.tenant
    context = {
        "of": tenant,
        "provider": (provider := provider_of(tenant.id)),
        "is_new": provider is None,
        "groups": _groups(tenant),
        "projects": [
            ("", "All (admins)"),
            *Project.objects.filter(tenant=tenant).order_by("name", "id").values_list("slug", "name"),
        ],
        "roles": Role.choices,
        "people": SignOnIdentity.objects.filter(tenant=tenant).count(),
        "callback": f"{settings.PUBLIC_URL}/sso/{tenant.slug}/callback",
        "start": f"{settings.PUBLIC_URL}/sso/{tenant.slug}",
        "refusal": refusal,
        "typed": request.POST if refusal else {},
    }
    status = 422 if refusal else 200
    return render(request, "portal/sign_on_settings.html", context, status=status)


def _groups(tenant: Tenant) -> list[SignOnGroup]:
    rows = SignOnGroup.objects.filter(tenant=tenant).select_related("project")
    return sorted(rows, key=lambda row: (row.group, row.project.name if row.project else ""))


def _acts(editor: Editor) -> dict[str, FormAction]:
    return {
        "save": partial(_save, editor),
        "test": lambda _: _test(editor),
        "on": lambda _: _switch(editor, is_on=True),
        "off": lambda _: _switch(editor, is_on=False),
        "group": partial(_group, editor),
        "group-remove": partial(_group_remove, editor),
    }


def _save(editor: Editor, form: QueryDict) -> str:
    terms = ProviderTerms(
        issuer=form.get("issuer", "").strip(),
        client_id=form.get("client_id", "").strip(),
        secret=form.get("secret", "").strip(),
        groups_claim=form.get("groups_claim", "").strip() or "groups",
    )
    try:
        endpoints = discover(terms.issuer)
    except ProviderFault as fault:
        raise invalid("bad_issuer", str(fault), "issuer") from None
    saved = provider_set(editor=editor, terms=terms, endpoints=endpoints, now=timezone.now())
    return "Provider saved." + ("" if saved.is_on else " Switch it on when its groups have roles.")


def _test(editor: Editor) -> str:
    provider = provider_of(editor.tenant.id)
    if provider is None:
        raise Refused("no_provider", refusal_text("provider_unsaved"))
    endpoints = _discovered(provider.issuer)
    provider_endpoints_set(editor=editor, endpoints=endpoints, now=timezone.now())
    return (
        "The provider answers, and its keys can be read. Sign in once yourself to test the client"
        " ID, the secret and the groups."
    )


def _discovered(issuer: str) -> Endpoints:
    try:
        return discover(issuer)
    except ProviderFault as fault:
        raise Refused("provider_fault", str(fault)) from None


def _switch(editor: Editor, *, is_on: bool) -> str:
    provider_on_set(editor=editor, is_on=is_on, now=timezone.now())
    return f"Single sign-on is {'on' if is_on else 'off. Its sessions end within 12 hours'}."


def _group(editor: Editor, form: QueryDict) -> str:
    made = group_add(
        editor=editor,
        group=form.get("group", ""),
        role=form.get("role", ""),
        project=form.get("project", ""),
        now=timezone.now(),
    )
    return f"Members of {made.group} get the role at their next sign-in."


def _group_remove(editor: Editor, form: QueryDict) -> str:
    removed = group_remove(editor=editor, group_id=id_read(form, "id", "group"), now=timezone.now())
    return f"Members of {removed.group} lose the role at their next sign-in."
