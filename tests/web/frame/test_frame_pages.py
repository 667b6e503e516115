"""The frame: the wall around every page, refusals as pages, and what the shell knows."""

import re
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory
from django.urls import get_resolver

from tenants.access import Actor
from tenants.models import Project, Role, Tenant, User
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.reference import by_version
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, shell, tenant_page, zone_of
from tests.builders import (
    a_member,
    a_project,
    a_tenant,
    a_tenant_admin,
    a_user,
    an_operator,
    signed_in,
)
from tests.roles import as_system

pytestmark = pytest.mark.django_db
TENANT_PAGES = ("people", "quotas", "tiers", "settings")
OPERATOR_PAGES = ("/ops/tiers", "/ops/quotas", "/ops/tenants", "/ops/speeds")
_CSRF = re.compile(rb'name="csrfmiddlewaretoken" value="[^"]*"')


def _same(answer: HttpResponseBase) -> tuple[int, bytes]:
    assert isinstance(answer, HttpResponse)
    return answer.status_code, _CSRF.sub(b"", answer.content)


def _request(user: User, path: str = "/t/x/y", method: str = "GET") -> HttpRequest:
    request = RequestFactory().generic(method, path)
    request.user = signed_in(user)
    request.session = {}  # type: ignore[assignment] # messages need a place to look for none
    return request


def _member(tenant: Tenant, role: str) -> User:
    if role == Role.TENANT_ADMIN:
        return a_tenant_admin(tenant).user
    return a_member(a_project(tenant), role).user


@pytest.mark.parametrize("role", [str(role) for role in Role])
@pytest.mark.parametrize("page", TENANT_PAGES)
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_foreign_tenants_page_is_the_missing_page(
    client: Client, role: str, page: str, method: str
) -> None:
    own, foreign, closed = a_tenant("own"), a_tenant("foreign"), a_tenant("shut", is_open=False)
    user = _member(own, role)
    a_member(a_project(closed), user=user)
    client.force_login(user)
    call = getattr(client, method)
    answers = {_same(call(f"/t/{slug}/{page}")) for slug in (foreign.slug, closed.slug, "not-there")}
    assert len(answers) == 1
    refused = 405 if (page, method) == ("tiers", "post") else 404
    assert next(iter(answers))[0] == refused


@pytest.mark.parametrize("page", TENANT_PAGES)
def test_signed_out_readers_are_asked_to_sign_in_and_come_back(client: Client, page: str) -> None:
    answer = client.get(f"/t/own/{page}?x=1")
    assert answer["Location"] == f"/sign-in?next=/t/own/{page}%3Fx%3D1"


@pytest.mark.parametrize("page", ["people", "quotas", "settings"])
def test_a_form_sent_after_the_session_ended_is_not_repeated(client: Client, page: str) -> None:
    assert client.post(f"/t/own/{page}")["Location"] == "/sign-in?next=/"


@pytest.mark.parametrize("page", OPERATOR_PAGES)
def test_an_operators_page_is_missing_for_everybody_else(client: Client, page: str) -> None:
    assert client.get(page)["Location"] == f"/sign-in?next={page}"
    client.force_login(_member(a_tenant(), Role.TENANT_ADMIN))
    for call in (client.get, client.post):
        assert call(page).status_code == 404
    client.force_login(an_operator())
    assert client.get(page).status_code == 200


def test_an_operator_is_no_member_of_any_tenant(client: Client) -> None:
    a_tenant("helix")
    client.force_login(an_operator())
    assert client.get("/t/helix/people").status_code == 404


@pytest.mark.parametrize("page", [f"/t/own/{page}" for page in TENANT_PAGES])
@pytest.mark.parametrize("role", [str(role) for role in Role])
def test_each_role_reads_the_own_tenants_pages_and_no_cache_keeps_them(
    client: Client, page: str, role: str
) -> None:
    client.force_login(_member(a_tenant("own"), role))
    answer = client.get(page)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]


def test_a_removed_member_is_out_with_the_next_request(client: Client) -> None:
    member = a_member(a_project(a_tenant("own")))
    client.force_login(member.user)
    assert client.get("/t/own/people").status_code == 200
    with as_system():
        member.delete()
    assert client.get("/t/own/people").status_code == 404


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (missing("project"), 404),
        (denied("Only leads."), 403),
        (invalid("bad", "Not a number.", "x"), 422),
        (Refused("busy", "Busy.", "conflict"), 409),
        (Refused("full", "Full.", "quota"), 409),
        (Refused("poor", "Poor.", "budget"), 409),
    ],
    ids=lambda value: getattr(value, "code", str(value)),
)
def test_a_refusal_becomes_a_page_and_undoes_the_work(refusal: Refused, status: int) -> None:
    project = a_project(a_tenant("own"))
    user = a_member(project).user

    @tenant_page
    def view(request: HttpRequest, actor: Actor) -> HttpResponse:
        Project.objects.filter(id=project.id).update(name="Changed")
        raise refusal

    @tenant_page
    def read(request: HttpRequest, actor: Actor) -> HttpResponse:
        return HttpResponse(Project.objects.get(id=project.id).name)

    answer = view(_request(user), tenant="own")
    assert answer.status_code == status
    assert refusal.sentence in answer.content.decode()
    assert read(_request(user), tenant="own").content.decode() == project.name


def test_a_refusals_page_says_whose_rule_it_is_and_escapes_it() -> None:
    user = a_member(a_project(a_tenant("own"))).user
    refusal = Refused(
        "x",
        "<b>No.</b>",
        rule="R7",
        owner="<i>Helix</i>",
        frees_at=datetime(2026, 11, 2, 9, 30, tzinfo=UTC),
    )

    @tenant_page
    def view(request: HttpRequest, actor: Actor) -> HttpResponse:
        raise refusal

    page = view(_request(user), tenant="own").content.decode()
    assert "&lt;b&gt;No.&lt;/b&gt;" in page
    assert "R7" in page
    assert "&lt;i&gt;Helix" in page
    assert "<i>Helix" not in page


def test_a_lazy_template_is_drawn_before_the_wall_closes() -> None:
    project = a_project(a_tenant("own"), name="Folding")
    user = a_member(project).user

    @tenant_page
    def view(request: HttpRequest, actor: Actor) -> HttpResponse:
        context = {"refusal": denied("Seen"), "lazy": Project.objects.all()}
        return TemplateResponse(request, "errors/refused.html", context)

    assert b"Seen" in view(_request(user), tenant="own").content


def test_a_query_after_the_wall_is_an_error() -> None:
    user = a_member(a_project(a_tenant("own"))).user
    kept = []

    @tenant_page
    def view(request: HttpRequest, actor: Actor) -> HttpResponse:
        kept.append(Project.objects.all())
        return HttpResponse()

    view(_request(user), tenant="own")
    with pytest.raises(DatabaseError, match="tenant context missing"):
        list(kept[0])


def test_a_database_that_cant_answer_is_said_to_be_busy() -> None:
    user = a_member(a_project(a_tenant("own"))).user

    @tenant_page
    def view(request: HttpRequest, actor: Actor) -> HttpResponse:
        raise OperationalError("canceling statement due to lock timeout: secret detail")

    answer = view(_request(user), tenant="own")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert b"secret detail" not in answer.content


def test_an_operators_page_sees_all_tenants() -> None:
    one, two = a_tenant(), a_tenant()

    @operator_page(Area.OVERVIEW)
    def view(request: HttpRequest, operator: User) -> HttpResponse:
        return HttpResponse(",".join(sorted(t.slug for t in Tenant.objects.all())))

    answer = view(_request(an_operator()))
    assert answer.content.decode() == ",".join(sorted([one.slug, two.slug]))


def test_the_shell_shows_a_member_their_open_projects_only() -> None:
    tenant = a_tenant("own")
    mine, closed = a_project(tenant, name="Mine"), a_project(tenant, name="Shut", is_open=False)
    a_project(tenant, name="Other")
    member = a_member(mine)
    a_member(closed, user=member.user)
    seen = {}

    @tenant_page
    def view(request: HttpRequest, actor: Actor) -> HttpResponse:
        seen.update(shell(request))
        return HttpResponse()

    view(_request(member.user, f"/t/own/p/{mine.slug}"), tenant="own")
    items = [item for group in seen["nav"] for item in group.items]
    assert [item.label for item in items if item.is_current] == ["Mine"]
    assert "Other" not in [item.label for item in items]
    assert "Shut" not in [item.label for item in items]
    assert "/ops/fleet" not in [item.url for item in items]
    assert {project.name for project in seen["projects"]} == {"Mine", "Shut"}
    assert seen["tenant"] == tenant


def test_the_shell_outside_any_page_knows_nothing() -> None:
    known = shell(RequestFactory().get("/sign-in"))
    assert (known["actor"], known["tenant"], known["nav"], known["is_operator"]) == (
        None,
        None,
        (),
        False,
    )


def test_an_unknown_zone_is_shown_in_utc_and_breaks_no_page(client: Client) -> None:
    assert zone_of("Mars/Olympus").key == "UTC"
    member = a_member(a_project(a_tenant("own")), user=a_user(time_zone="Mars/Olympus"))
    client.force_login(member.user)
    assert client.get("/t/own/settings").status_code == 200


def test_the_shell_is_on_every_page_of_the_product() -> None:
    """The settings must name the context processor, the 404 page and the page for stale forms."""
    processors = settings.TEMPLATES[0]["OPTIONS"]["context_processors"]
    assert "tenants.web.frame.shell" in processors
    assert settings.CSRF_FAILURE_VIEW == "portal.web.errors.csrf_failed"
    resolver = get_resolver()
    handlers = {code: resolver.resolve_error_handler(code) for code in (400, 403, 404, 500)}
    assert {code: handler.__name__ for code, handler in handlers.items()} == {
        400: "bad_request",
        403: "denied",
        404: "not_found",
        500: "broken",
    }


def test_an_address_that_nobody_serves_reads_like_any_missing_page(client: Client) -> None:
    client.force_login(a_user())
    answers = {_same(client.get(path)) for path in ("/no/such/<b>page</b>", "/ops/tiers")}
    assert len(answers) == 1


def test_reference_data_is_kept_for_pages_and_read_again_for_forms() -> None:
    """A form may change what is kept, and has to see the change."""
    tenant = a_tenant("own")
    user, reads = _member(tenant, Role.RESEARCHER), []

    @by_version
    def price(name: str) -> str:
        reads.append(name)
        return name

    @tenant_page
    def page(request: HttpRequest, actor: Actor) -> HttpResponse:
        return HttpResponse(price("h100") + price("h100"))

    for method, expected in (("GET", 1), ("GET", 1), ("POST", 3)):
        page(_request(user, method=method), tenant=tenant.slug)
        assert len(reads) == expected, method


def test_a_form_from_another_site_does_nothing() -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(a_tenant_admin(a_tenant("own")).user)
    form = {"act": "project", "name": "Vision", "slug": "vision"}
    assert strict.post("/t/own/people", form).status_code == 403
