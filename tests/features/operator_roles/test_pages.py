"""The page of roles, and what pages show to operators whose roles do not reach."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Node
from portal.integrations.notifications.delivery import _to_each
from tenants.models import OperatorRole, OutboxMessage
from tenants.platform.wall import operator_tx
from tenants.queries import operators_acting, operators_reading
from tenants.rules.operator_roles import Area
from tenants.services.members.operator_access import AccessTerms, access_begin
from tests.api.builders import some_hardware
from tests.builders import a_gpu_class, a_tenant, a_user, an_operator
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db


def _client(username: str, role: str, *names: str) -> Client:
    client = Client()
    client.force_login(an_operator(username, role, *names))
    return client


def _main(html: str) -> str:
    return html[html.index("<main") :]


def _enabled(html: str) -> list[str]:
    """Controls of the page's POST forms that can be used."""
    forms = re.findall(r'<form\b[^>]*method="post"[^>]*>.*?</form>', _main(html), re.DOTALL)
    controls = (
        each for form in forms for each in re.findall(r"<(?:button|input|select|textarea)\b[^>]*>", form)
    )
    return [each for each in controls if " disabled" not in each]


def test_a_site_operator_gives_approves_and_ends_roles_on_the_page() -> None:
    olga, otto = _client("olga", "site"), _client("otto", "site")
    a_user("nina", first_name="Nina")
    form = {"act": "give", "username": "nina", "role": "billing", "names": "", "sure": "1"}
    assert olga.post("/ops/roles", form).status_code == 302
    assert "Nina has the role Billing." in olga.get("/ops/roles").content.decode()
    assert olga.post("/ops/roles", form | {"role": "site"}).status_code == 302
    page = olga.get("/ops/roles").content.decode()
    assert "Waits for another site operator" in page
    assert ">Approve<" not in page
    assert ">Approve<" in otto.get("/ops/roles").content.decode()
    with as_system():
        row = OperatorRole.objects.get(user__username="nina", role="site")
    assert olga.post("/ops/roles", {"act": "approve", "role": str(row.id), "sure": "1"}).status_code == 422
    assert otto.post("/ops/roles", {"act": "approve", "role": str(row.id), "sure": "1"}).status_code == 302
    assert otto.post("/ops/roles", {"act": "end", "role": str(row.id), "sure": "1"}).status_code == 302
    assert olga.post("/ops/roles", form | {"names": "h100", "role": "support"}).status_code == 422


def test_the_menu_has_what_the_roles_open_and_a_refusal_says_which_are_needed() -> None:
    an_operator("olga")
    bill = _client("bill", "billing")
    page = bill.get("/ops/prices").content.decode()
    menu = page[page.index('<nav class="nav"') : page.index("</nav>")]
    assert 'href="/ops/prices"' in menu
    assert 'href="/ops/policy"' not in menu
    assert 'href="/ops/fleet"' not in menu
    answer = bill.get("/ops/fleet")
    assert answer.status_code == 403
    said = answer.content.decode()
    assert "GPU classes" in said
    assert "Your roles: billing. Roles are given by olga." in said
    nobody = _client("nobody", "")
    assert nobody.get("/ops/overview").status_code == 403
    assert "Your roles: none" in nobody.get("/ops/overview").content.decode()


def test_an_access_to_an_organisation_ends_with_the_role_that_opened_it() -> None:
    tenant, sue = a_tenant("helix"), an_operator("sue", "support")
    now = timezone.now()
    with operator_tx():
        terms = AccessTerms(tenant="helix", person="", reason="Help", length=timedelta(hours=1))
        access_begin(operator=sue, terms=terms, now=now)
    client = Client()
    client.force_login(sue)
    assert client.get(f"/t/{tenant.slug}/bookings").status_code == 200
    with as_owner():
        OperatorRole.objects.filter(user=sue).update(role="read_only")
    assert client.get(f"/t/{tenant.slug}/bookings").status_code == 404


def test_notices_go_to_operators_whose_roles_open_their_page() -> None:
    for role in ("site", "billing", "read_only", "support"):
        an_operator(f"{role}-operator", role)
    an_operator("nobody", "")
    with as_system():
        reading = {each.username for each in operators_reading(Area.SYSTEM)}
        assert reading == {"site-operator", "read_only-operator", "support-operator"}
        assert {each.username for each in operators_acting(Area.MONEY)} == {
            "site-operator",
            "billing-operator",
        }
        message = OutboxMessage(kind="price_drafts", payload={})
        asked = _to_each(message, "x", "x", "/ops/failed-messages?a=1#b")
        assert {each.operator.username for each in asked} == reading


@pytest.mark.parametrize("path", ["policy", "tiers", "tenants", "stops", "roles", "maintenance"])
def test_who_only_reads_gets_the_page_with_disabled_forms_and_why(path: str) -> None:
    some_hardware()
    answers = {}
    for role in ("site", "read_only"):
        answer = _client(role, role).get(f"/ops/{path}")
        assert answer.status_code == 200
        answers[role] = answer.content.decode()
    assert _enabled(answers["site"])
    assert _enabled(answers["read_only"]) == []
    assert "Roles are given by" in _main(answers["read_only"])
    assert "Roles are given by" not in answers["site"]


def test_acts_on_a_node_are_open_to_the_role_of_its_class_only() -> None:
    some_hardware()
    a_gpu_class("a100")
    with as_system():
        name = Node.objects.get().name
    theirs, others = _client("hans", "class", "h100"), _client("anna", "class", "a100")
    drain = f"/ops/fleet/{name}/drain"
    assert _enabled(theirs.get(f"/ops/fleet/{name}").content.decode())
    closed = others.get(f"/ops/fleet/{name}").content.decode()
    assert _enabled(closed) == []
    assert f"{name} is not among the nodes of your roles: gpu classes (a100)" in closed
    assert others.post(drain, {"reason": "fans", "sure": "1"}).status_code == 403
    assert theirs.post(drain, {"reason": "fans", "sure": "1"}).status_code == 302
    assert others.post(f"/ops/fleet/{name}/ready", {"sure": "1"}).status_code == 403
    assert theirs.post(f"/ops/fleet/{name}/ready", {"sure": "1"}).status_code == 302
