"""A person's settings, and the tokens of an organisation: time zone, e-mail and API tokens."""

import zoneinfo
from datetime import datetime

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.models import ApiToken, Project, Scope, User
from tenants.platform.errors import Refused, denied
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.queries import tokens_of
from tenants.services import (
    TokenLimits,
    token_create,
    token_revoke,
    token_rotate,
    tokens_revoke,
    user_mails_set,
    user_zone_set,
    whole_read,
)
from tenants.web.frame import tenant_page
from tenants.web.parts import counted
from tenants.web.sessions import sessions_shown
from tenants.words import refusal_text

MOST_NAMED = 8
LIFE_DEFAULT = "90"
"""Default lifetime of a token in days."""
SCOPES_DEFAULT = (Scope.READ, Scope.BOOK)
OVERLAP_HOURS = 24


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def settings(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the settings. The text of a new token is shown only once."""
    refusal = None
    made: list[str] = []
    if request.method == "POST":
        if (question := _question(actor, request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(
            request,
            {
                "zone": lambda form: _zone(actor, form),
                "mails": lambda form: _mails(actor, form),
                "token": lambda form: _token(actor, form, made),
                "rotate": lambda form: _rotate(actor, form, made),
                "revoke": lambda form: _revoke(actor, form),
                "revoke-all": lambda _: _revoke_all(actor),
            },
        )
        # No redirect with a new token: it would have to be stored in the session in clear text.
        if refusal is None and not made:
            return redirect("settings", tenant=actor.tenant_slug)
    return _page(request, actor, refusal, made[0] if made else "")


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def organisation_tokens(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows everybody's tokens to admins; POST revokes one."""
    if not actor.is_tenant_admin:
        raise denied(refusal_text("admins_only"))
    refusal = None
    if request.method == "POST":
        if (question := _question(actor, request.POST, "organisation/tokens")) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(request, {"revoke": lambda form: _revoke(actor, form)})
        if refusal is None:
            return redirect("organisation-tokens", tenant=actor.tenant_slug)
    now = timezone.now()
    rows = [(each, token_state(each, now)) for each in tokens_of(actor.tenant_id, None)]
    live = sum(state == "live" for _, state in rows)
    context = {"rows": rows, "live": live, "refusal": refusal}
    return render(request, "tenants/organisation_tokens.html", context, status=422 if refusal else 200)


def _page(request: HttpRequest, actor: Actor, refusal: Refused | None, clear: str) -> HttpResponse:
    now, typed = timezone.now(), request.POST if refusal else QueryDict()
    tokens = tokens_of(actor.tenant_id, actor.user_id)
    context = {
        "zones": [(name, name) for name in sorted(filter(_is_place, zoneinfo.available_timezones()))],
        "my_zone": actor.time_zone,
        "me": User.objects.get(id=actor.user_id),
        "mine": [(t, token_state(t, now)) for t in tokens if t.user_id == actor.user_id],
        "live": sum(token_state(t, now) == "live" for t in tokens if t.user_id == actor.user_id),
        "sessions": sessions_shown(request),
        "clear": clear,
        "refusal": refusal,
        "example": "CI of folding",
        "name": typed.get("name", ""),
        "days": typed.get("days", LIFE_DEFAULT),
        "scopes": [
            (value, label, value in (typed.getlist("scope") if typed else SCOPES_DEFAULT))
            for value, label in Scope.choices
        ],
        "token_project": typed.get("project", ""),
        "token_projects": [("", "All of mine"), *_projects(actor)],
    }
    return render(request, "tenants/settings.html", context, status=422 if refusal else 200)


def _zone(actor: Actor, form: QueryDict) -> str:
    zone = form.get("zone", "")
    user_zone_set(actor=actor, zone=zone, now=timezone.now())
    return f"Times are now shown and entered in {zone}."


def _mails(actor: Actor, form: QueryDict) -> str:
    user_mails_set(actor=actor, mails=form.get("mails", ""), now=timezone.now())
    return "E-mail settings saved."


def _token(actor: Actor, form: QueryDict, made: list[str]) -> str:
    days = whole_read(form.get("days", ""), param="days")
    token, clear = token_create(
        actor=actor,
        name=form.get("name", ""),
        days=days,
        now=timezone.now(),
        limits=TokenLimits(form.getlist("scope"), form.get("project") or None),
    )
    made.append(clear)
    return f"Token {token.name} created. Copy it now; it is shown only once."


def _rotate(actor: Actor, form: QueryDict, made: list[str]) -> str:
    token, clear = token_rotate(
        actor=actor,
        token_id=id_read(form, "token", "token"),
        overlap_hours=OVERLAP_HOURS,
        now=timezone.now(),
    )
    made.append(clear)
    return f"{token.name} replaced. The old token works for {OVERLAP_HOURS} hours more."


def _projects(actor: Actor) -> list[tuple[str, str]]:
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    return [(each.slug, each.name) for each in projects]


def _revoke(actor: Actor, form: QueryDict) -> str:
    token = token_revoke(actor=actor, token_id=id_read(form, "token", "token"), now=timezone.now())
    return f"{token.name} revoked. Programs that use it are now refused."


def _revoke_all(actor: Actor) -> str:
    ended = tokens_revoke(actor=actor, now=timezone.now())
    return f"Revoked: {counted(ended, 'token')}."


def _question(actor: Actor, form: QueryDict, page: str = "settings") -> Confirmation | None:
    """Returns the confirmation before tokens are revoked; None for a refused request."""
    if form.get("act") not in ("revoke", "revoke-all") or CONFIRMED_FIELD in form:
        return None
    is_all = form.get("act") == "revoke-all"
    now = timezone.now()
    seen = tokens_of(actor.tenant_id, None if actor.is_tenant_admin and not is_all else actor.user_id)
    ended = [
        token
        for token in seen
        if token_state(token, now) == "live" and (is_all or str(token.id) == form.get("token"))
    ]
    if not ended:
        return None
    one = ended[0].name if len(ended) == 1 else f"{len(ended)} tokens"
    return Confirmation(
        title=f"Revoke {one}?",
        lost=(
            *(f"{token.name}: {_last_used(token)}" for token in ended[:MOST_NAMED]),
            *([f"and {len(ended) - MOST_NAMED} more"] if len(ended) > MOST_NAMED else []),
            "Programs that use it stop working. Their bookings are kept.",
            "This can't be undone: a new token has a different value.",
        ),
        button=f"Revoke {one}",
        back=f"/t/{actor.tenant_slug}/{page}",
    )


def _last_used(token: ApiToken) -> str:
    if token.last_used is None:
        return "never used"
    used, today = timezone.localtime(token.last_used), timezone.localdate()
    year = "" if used.year == today.year else f" {used.year}"
    return f"last used {used:%a} {used.day} {used:%b}{year} {used:%H:%M}"


def token_state(token: ApiToken, now: datetime) -> str:
    """Returns `live`, `expired` or `revoked`."""
    if token.revoked is not None:
        return "revoked"
    return "expired" if token.expires <= now else "live"


def _is_place(name: str) -> bool:
    area, _, place = name.partition("/")
    return name == "UTC" or (bool(place) and area not in ("Etc", "SystemV", "US", "posix", "right"))
