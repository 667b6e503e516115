"""The start of an organisation's settings: its pages, with what each has now."""

from collections.abc import Mapping

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from tenants.access import Actor
from tenants.models import ApiToken, Lab, Membership, Role, ServiceAccount, Webhook
from tenants.queries import invitations_of
from tenants.web.frame import tenant_page
from tenants.web.navigation import ORGANISATION
from tenants.web.parts import counted


@require_safe
@tenant_page
def organisation(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the pages that the reader may open, in groups."""
    states = _states(actor)
    groups = [
        (label, [(page, states.get(page.suffix, "")) for page in pages if page.is_open_to(actor)])
        for label, pages in ORGANISATION
    ]
    return render(request, "tenants/organisation.html", {"groups": [each for each in groups if each[1]]})


def _states(actor: Actor) -> Mapping[str, str]:
    """What there is of each page, by its address. Of what the reader may not open nothing is counted."""
    rows = Membership.objects.filter(tenant_id=actor.tenant_id, user__is_active=True)
    people = rows.filter(user__service_account=None).aggregate(
        all=Count("user", distinct=True),
        admins=Count("user", distinct=True, filter=Q(role=Role.TENANT_ADMIN)),
    )
    states = {"labs": counted(Lab.objects.filter(tenant=actor.tenant_id, is_open=True).count(), "lab")}
    if not actor.leads_any:
        return states
    led = [key for key in actor.roles if actor.may_lead(key)]
    called = Webhook.objects.filter(tenant_id=actor.tenant_id, kind=Webhook.Kind.WEBHOOK)
    seen = called if actor.is_tenant_admin else called.filter(project__in=led)
    off = seen.filter(disabled_at__isnull=False).count()
    states["settings/webhooks"] = counted(seen.count(), "webhook") + (f", {off} switched off" if off else "")
    if actor.is_tenant_admin:
        now = timezone.now()
        open_ones = invitations_of(actor.tenant_id, now).filter(state="open").count()
        noun = "person" if people["all"] == 1 else "people"
        states["people"] = f"{people['all']} {noun}, {counted(people['admins'], 'admin')}" + (
            f", {counted(open_ones, 'open invitation')}" if open_ones else ""
        )
        tokens = ApiToken.objects.filter(tenant_id=actor.tenant_id, revoked=None, expires__gt=now)
        states["organisation/tokens"] = counted(tokens.count(), "token") + ", not expired"
        accounts = ServiceAccount.objects.filter(tenant_id=actor.tenant_id)
        states["settings/service-accounts"] = counted(accounts.count(), "service account")
    return states
