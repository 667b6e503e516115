"""Asks for a fresh second factor before dangerous acts."""

from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from tenants.models import User
from tenants.services.second_factor import is_fresh
from tenants.web.sessions import credential_of


def step_up(request: HttpRequest, user: User) -> HttpResponse | None:
    """Returns the way to the second factor, if the person has one and did not just give it.

    The person repeats the act afterwards. Call it in `operator_tx`.
    """
    if is_fresh(user, credential_of(request), timezone.now()):
        return None
    return redirect(f"/second-factor?next={quote(request.path)}")
