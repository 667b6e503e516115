"""The page on which a tenant's admin connects a directory. The operators' process serves it."""

from typing import cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor, require_tenant_admin
from tenants.models import DirectoryPerson, Tenant, User
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.services.directory.tokens import (
    directory_token_of,
    directory_token_remove,
    directory_token_set,
)
from tenants.services.sign_on.providers import Editor
from tenants.web.frame import tenant_page
from tenants.web.step_up import step_up


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def directory_settings(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the address for the directory, and creates, replaces or removes its token."""
    require_operators_process()
    require_tenant_admin(actor)
    made: list[str] = []
    with operator_tx():
        tenant = Tenant.objects.get(id=actor.tenant_id)
        editor = Editor(tenant, actor.user_id)
        refusal = None
        if request.method == "POST":
            if (ask := step_up(request, cast(User, request.user))) is not None:
                return ask
            acts: dict[str, FormAction] = {
                "set": lambda _: _set(editor, made),
                "remove": lambda _: _removed(editor),
            }
            refusal = form_action_run(request, acts)
            if refusal is None and not made:
                return redirect(request.path)
        context = {
            "token": directory_token_of(tenant.id),
            "made": made[0] if made else "",
            "address": f"{settings.PUBLIC_URL}/scim/v2",
            "people": DirectoryPerson.objects.filter(tenant=tenant).count(),
            "refusal": refusal,
        }
        status = 422 if refusal else 200
        return render(request, "portal/directory.html", context, status=status)


def _set(editor: Editor, made: list[str]) -> str:
    made.append(directory_token_set(editor=editor, now=timezone.now()))
    return "Token created. It is shown once."


def _removed(editor: Editor) -> str:
    directory_token_remove(editor=editor, now=timezone.now())
    return "Token removed. The directory's calls are refused from now on."
