"""The page on which a person confirms the sign-in of a device, such as a terminal."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import actor_in, tenants_of
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services import whole_read
from tenants.services.sign_in.devices import (
    DeviceRequest,
    device_decline,
    device_grant,
    device_request,
)
from tenants.services.sign_in.rate_limits import call_limit_check
from tenants.web.frame import STATUS, person_page

DAYS_DEFAULT = "90"
LONGEST_CODE = 40


@require_http_methods(["GET", "HEAD", "POST"])
@person_page
def device_sign_in(request: HttpRequest, user: User) -> HttpResponse:
    """Asks for the code of a device, shows what it asks for, and takes the decision."""
    form = request.POST if request.method == "POST" else request.GET
    code = form.get("code", "").strip()[:LONGEST_CODE]
    context = {"code": code, "days": request.POST.get("days", DAYS_DEFAULT), "user": user}
    try:
        if code:
            # A person who guesses codes could sign in devices of others as themselves.
            call_limit_check("device", f"user:{user.pk}", timezone.now())
            context["wanted"] = device_request(code)
            context["tenants"] = [(each.slug, each.name) for each in tenants_of(user, timezone.now())]
        if request.method == "POST" and "act" in request.POST:
            context["decided"] = _decide(request, user, code)
            context["is_granted"] = request.POST["act"] == "grant"
    except Refused as refusal:
        context["refusal"] = refusal
        status = STATUS.get(refusal.kind, 409)
        return render(request, "portal/device_sign_in.html", context, status=status)
    return render(request, "portal/device_sign_in.html", context)


def _decide(request: HttpRequest, user: User, code: str) -> DeviceRequest:
    if request.POST["act"] != "grant":
        return device_decline(code)
    now = timezone.now()
    days = whole_read(request.POST.get("days", ""), param="days")
    actor = actor_in(user, request.POST.get("tenant", ""), now)
    with tenant_tx(actor.tenant_id):
        return device_grant(actor=actor, user_code=code, days=days, now=now)
