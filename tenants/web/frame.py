"""The frame of every page: the reader, the tenant wall and the shell."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from http import HTTPStatus
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.views import redirect_to_login
from django.db import InternalError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template import loader
from django.template.response import SimpleTemplateResponse
from django.utils import timezone

from tenants.access import Actor, actor_in, operator_rights, role_needed, tenants_of
from tenants.models import Announcement, Project, Tenant, User
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.text import form_text_error
from tenants.platform.log_ids import log_id
from tenants.platform.reference import reference_tx
from tenants.platform.rows import with_last_rows
from tenants.platform.wall import (
    operator_tx,
    require_operators_process,
    tenant_read_tx,
    tenant_tx,
)
from tenants.queries import operator_unread_count, unread_count
from tenants.rules.operator_roles import NO_RIGHTS, Area, Rights
from tenants.services.announcements import announcements_shown
from tenants.services.members.operator_access import AccessView, access_page_read, access_view
from tenants.services.policy_hooks.calls import hook_asking
from tenants.services.sign_in.second_factor import is_protected
from tenants.web.locked_forms import forms_lock
from tenants.web.navigation import area_of, navigation
from tenants.web.step_up import page_step_up, step_up
from tenants.words import refusal_text

View = Callable[..., HttpResponse]

STATUS = {
    "missing": HTTPStatus.NOT_FOUND,
    "denied": HTTPStatus.FORBIDDEN,
    "invalid": HTTPStatus.UNPROCESSABLE_ENTITY,
}

THEMES = ("light", "dark")
"""Values of the cookie `theme`; without it, the system's setting applies."""

FRAME = "portal.frame"
"""Where a request keeps its Frame, so that an error page has the same shell."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What the shell knows about a request; on operator pages only the person's zone and rights, and
    whether they have no second factor. `out_of_reach`: why the nodes of the page are not for them."""

    actor: Actor | None
    tenant: Tenant | None
    projects: tuple[Project, ...]
    zone: str
    needs_factor: bool = False
    unread: int = 0
    access: AccessView | None = None
    rights: Rights = NO_RIGHTS
    out_of_reach: str = ""


@dataclass(frozen=True, slots=True)
class Zone:
    """The reader's time zone in the shell: "Europe/Berlin", "Berlin", "UTC+1"."""

    name: str
    place: str
    offset: str


def tenant_page(view: View) -> View:
    """Makes `view(request, actor, **url_kwargs)` a page behind the wall of `<slug:tenant>`.

    Signed-out readers are sent to sign in. The view and its rendering run in one transaction of the
    tenant, in the reader's time zone; a `Refused` undoes it and becomes a page of its own.
    """

    @wraps(view)
    def page(request: HttpRequest, tenant: str, **url_kwargs: object) -> HttpResponse:
        user = request.user
        if not isinstance(user, User):
            return redirect_to_login(_back(request))
        access = _access_of(user, tenant)
        if access is not None:
            return _read_as(request, access, lambda actor: view(request, actor, **url_kwargs))
        try:
            actor = actor_in(user, tenant, timezone.now())
        except Refused as refusal:
            return refused_page(request, refusal)

        log_id(user=user.pk)

        def answer() -> HttpResponse:
            request.META[FRAME] = _tenant_frame(actor)
            return page_step_up(request) or view(request, actor, **url_kwargs)

        def wall() -> AbstractContextManager[None]:
            # A form may change what is kept by version, and its page has to show the change.
            opened = reference_tx if request.method in ("GET", "HEAD") else tenant_tx
            return opened(actor.tenant_id)

        # Holds of money wait for the commit, and not for the rendering of the page.
        return with_last_rows(lambda: _guarded(request, answer, wall, actor.time_zone))

    return page


def _access_of(user: User, tenant: str) -> AccessView | None:
    """The open access of an operator whose role still allows one."""
    now = timezone.now()
    if not operator_rights(user, now).may(Area.ACCESS, act=True):
        return None
    return access_view(user, tenant, now)


def _read_as(request: HttpRequest, access: AccessView, view: Callable[[Actor], HttpResponse]) -> HttpResponse:
    """Shows a page to an operator with an open access, and writes that it was read.

    Whatever would change something is refused, and the database would refuse it, too.
    """
    log_id(user=access.operator_id)
    actor = access.actor
    refusal = Refused(
        "read_only_access",
        refusal_text("read_only_access", person=access.person or "one of its admins"),
        "denied",
    )
    if request.method not in ("GET", "HEAD"):
        return refused_page(request, refusal)
    access_page_read(access, request.get_full_path(), timezone.now())

    def answer() -> HttpResponse:
        request.META[FRAME] = replace(_tenant_frame(actor), access=access)
        return view(actor)

    try:
        return _guarded(request, answer, lambda: tenant_read_tx(actor.tenant_id), actor.time_zone)
    except InternalError:
        # The database's answer to a write in a transaction that only reads.
        return refused_page(request, refusal)


def operator_page(area: Area) -> Callable[[View], View]:
    """Makes `view(request, operator, **url_kwargs)` a page for the platform's operators.

    Everyone else gets a 404; an operator gets a 403 unless one of their roles reads the area, and for a
    POST acts in it. A POST also needs a fresh second factor (`step_up`). Runs in one `operator_tx` in
    the operators' process; a web process forwards the request to it.
    """

    def made(view: View) -> View:
        @wraps(view)
        def page(request: HttpRequest, **url_kwargs: object) -> HttpResponse:
            user = request.user
            if not isinstance(user, User):
                return redirect_to_login(_back(request))
            if not user.is_staff:
                return refused_page(request, missing("page"))
            require_operators_process()
            log_id(user=user.pk)

            def answer() -> HttpResponse:
                frame = request.META[FRAME] = _operator_frame(user)
                act = request.method not in ("GET", "HEAD")
                if not frame.rights.may(area, act=act):
                    raise role_needed(frame.rights, area, act=act)
                if request.method == "POST" and (asked := step_up(request, user)) is not None:
                    return asked
                return view(request, user, **url_kwargs)

            response = _guarded(request, answer, operator_tx, user.time_zone)
            _forms_lock(request, response)
            return response

        setattr(page, "operator_area", area)  # noqa: B010
        return page

    return made


def _operator_frame(user: User) -> Frame:
    return Frame(
        actor=None,
        tenant=None,
        projects=(),
        zone=user.time_zone,
        needs_factor=not is_protected(user),
        unread=operator_unread_count(user.pk),
        rights=operator_rights(user, timezone.now()),
    )


def page_reach_set(request: HttpRequest, reason: str) -> None:
    """Disables what the page offers for its nodes, because they are not among those of the reader."""
    request.META[FRAME] = replace(request.META[FRAME], out_of_reach=reason)


def _forms_lock(request: HttpRequest, response: HttpResponse) -> None:
    """Disables the forms of a page that its reader may not send."""
    frame: Frame | None = request.META.get(FRAME)
    if frame is None or response.streaming or not response["Content-Type"].startswith("text/html"):
        return

    def may_act(where: Area) -> bool:
        return frame.rights.may(where, act=True) and not (where == Area.NODES and frame.out_of_reach)

    def reason(where: Area) -> str:
        return frame.out_of_reach or role_needed(frame.rights, where, act=True).sentence

    if not all(may_act(each) for each in Area):
        forms_lock(response, request.path, may_act, reason)


def person_page(view: View) -> View:
    """Makes `view(request, user, **url_kwargs)` a page of the person, outside tenants.

    The shell is that of the person's first tenant, if any. The view opens the tenants it reads or
    writes itself.
    """

    @wraps(view)
    def page(request: HttpRequest, **url_kwargs: object) -> HttpResponse:
        user = request.user
        if not isinstance(user, User):
            return redirect_to_login(_back(request))
        log_id(user=user.pk)

        def answer() -> HttpResponse:
            request.META[FRAME] = _person_frame(user)
            return page_step_up(request) or view(request, user, **url_kwargs)

        return _guarded(request, answer, nullcontext, user.time_zone)

    return page


def refused_page(request: HttpRequest, refusal: Refused) -> HttpResponse:
    """Returns the page of a refusal: 404 missing, 403 denied, 422 invalid, else 409."""
    status = STATUS.get(refusal.kind, HTTPStatus.CONFLICT)
    response = render(request, "errors/refused.html", {"refusal": refusal}, status=status)
    return _private(response)


def busy_page() -> HttpResponse:
    """Returns a 503 page. It does not query the database, not even for the reader."""
    response = HttpResponse(
        loader.render_to_string("errors/busy.html"), status=HTTPStatus.SERVICE_UNAVAILABLE
    )
    response["Retry-After"] = "5"
    return _private(response)


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `actor`, `tenant`, `projects`, `zone`, `nav`, `area`, `is_operator`, `theme`,
    `needs_factor`, `unread` (of notifications), `announcements`."""
    frame = request.META.get(FRAME)
    user = getattr(request, "user", None)
    is_operator = isinstance(user, User) and user.is_staff
    if frame is None:
        zone = user.time_zone if isinstance(user, User) else "UTC"
        frame = Frame(None, None, (), zone)
    rights = frame.rights
    if isinstance(user, User) and user.is_staff and not rights.grants:
        rights = operator_rights(user, timezone.now())
    return {
        "actor": frame.actor,
        "tenant": frame.tenant,
        "projects": frame.projects,
        "zone": _zone(frame.zone, timezone.now()),
        "nav": navigation(request.path, frame.actor, frame.projects, rights),
        "area": area_of(request.path, frame.actor),
        "is_operator": is_operator,
        "needs_factor": frame.needs_factor,
        "unread": frame.unread,
        "operator_access": frame.access,
        "announcements": lambda: _announcements(user, frame),
        "theme": theme if (theme := request.COOKIES.get("theme")) in THEMES else "",
    }


def _announcements(user: object, frame: Frame) -> list[Announcement]:
    """What operators announce to the reader."""
    tenant_id = frame.actor.tenant_id if frame.actor else None
    user_id = user.pk if isinstance(user, User) else None
    return announcements_shown(timezone.now(), user_id=user_id, tenant_id=tenant_id)


def zone_of(name: str) -> ZoneInfo:
    """Returns the zone, or UTC for a name that this machine's table does not have."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def _guarded(
    request: HttpRequest,
    answer: Callable[[], HttpResponse],
    wall: Callable[[], AbstractContextManager[None]],
    zone: str,
) -> HttpResponse:
    def run() -> HttpResponse:
        with wall():
            response = answer()
            # Invisible characters in a form undo its changes.
            fault = form_text_error(request)
            if fault is not None:
                raise fault
            # Templates query the database, so they render inside the wall.
            if isinstance(response, SimpleTemplateResponse):
                response.render()
            return response

    with timezone.override(zone_of(zone)):
        try:
            response = hook_asking(run)
        except Refused as refusal:
            return refused_page(request, refusal)
        except OperationalError:
            return busy_page()
    return _private(response)


def _private(response: HttpResponse) -> HttpResponse:
    response.setdefault("Cache-Control", "no-store, private")
    return response


def _back(request: HttpRequest) -> str:
    """Returns where to go after signing in: the page of a GET, else the start page."""
    return request.get_full_path() if request.method in ("GET", "HEAD") else "/"


def _tenant_frame(actor: Actor) -> Frame:
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    return Frame(
        actor=actor,
        tenant=Tenant.objects.get(id=actor.tenant_id),
        projects=tuple(projects),
        zone=actor.time_zone,
        unread=unread_count(actor.tenant_id, actor.user_id),
    )


def _person_frame(user: User) -> Frame:
    now = timezone.now()
    tenants = tenants_of(user, now)
    if not tenants:
        return Frame(None, None, (), user.time_zone)
    with tenant_tx(tenants[0].tenant_id):
        return _tenant_frame(actor_in(user, tenants[0].slug, now))


def _zone(name: str, now: datetime) -> Zone:
    known = zone_of(name)
    offset = now.astimezone(known).utcoffset()
    minutes = round(offset.total_seconds() / 60) if offset is not None else 0
    hours, rest = divmod(abs(minutes), 60)
    sign = "-" if minutes < 0 else "+"
    text = f"UTC{sign}{hours}" + (f":{rest:02}" if rest else "")
    place = known.key.rpartition("/")[2].replace("_", " ")
    return Zone(known.key, place, "" if known.key == "UTC" else text)
