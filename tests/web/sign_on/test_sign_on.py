"""Single sign-on against a real provider: accounts, roles by group, and who is never signed in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings as portal_settings
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tenants.models import (
    AuditEntry,
    Membership,
    Password,
    Project,
    Role,
    Session,
    SignOnAttempt,
    SignOnIdentity,
    SignOnProvider,
    Tenant,
    User,
)
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tenants.services.members.people import require_another_admin
from tenants.services.sign_in.sessions import session_digest
from tenants.services.sign_on.addresses import provider_addresses
from tenants.services.sign_on.providers import (
    Editor,
    Endpoints,
    ProviderTerms,
    group_add,
    provider_on_set,
    provider_set,
    secret_open,
)
from tests.api.builders import Api, a_token, said
from tests.builders import (
    a_member,
    a_project,
    a_tenant,
    a_tenant_admin,
    actor_now,
    an_operator,
)
from tests.roles import as_owner, as_system
from tests.web.sign_on.provider import Provider, a_provider, sent_to, sign_in_by

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
SECRET = "s3cret+of/helix=ü"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with a_provider() as running:
        yield running


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.SIGN_ON_ALLOW = [ip_network("127.0.0.0/8")]


@dataclass
class Site:
    """A tenant whose provider signs in: its groups give roles in folding."""

    tenant: Tenant
    folding: Project
    admin: Membership
    browser: Client

    @property
    def page(self) -> str:
        return f"/t/{self.tenant.slug}/settings/sign-on"

    def group(self, name: str, role: str, project: str = "") -> HttpResponse:
        form = {"act": "group", "group": name, "role": role, "project": project}
        return cast(HttpResponse, self.browser.post(self.page, form))


def a_site(provider: Provider, slug: str = "helix") -> Site:
    """One that is switched on; `gpu-users` are researchers in folding."""
    tenant, now = a_tenant(slug), timezone.now()
    admin, browser = a_tenant_admin(tenant), Client()
    browser.force_login(admin.user)
    site = Site(tenant, a_project(tenant, f"folding-{slug}"), admin, browser)
    url, editor = provider.issuer, Editor(tenant, admin.user_id)
    with operator_tx():
        provider_set(
            editor=editor,
            terms=ProviderTerms(url, "portal", SECRET),
            endpoints=Endpoints(f"{url}/oauth2/authorize", f"{url}/oauth2/token", f"{url}/jwks"),
            now=now,
        )
        researcher = {"role": "researcher", "project": site.folding.slug}
        group_add(editor=editor, group="gpu-users", now=now, **researcher)
        provider_on_set(editor=editor, is_on=True, now=now)
    return site


def roles_of(user: User) -> dict[str, str]:
    """The person's roles by project; "" is the tenant."""
    with as_system():
        rows = Membership.objects.filter(user=user).select_related("project")
        return {each.project.slug if each.project else "": each.role for each in rows}


def person_of(subject: str) -> User:
    with as_system():
        return SignOnIdentity.objects.select_related("user").get(subject=subject).user


def test_the_first_sign_in_makes_an_account_and_groups_give_its_roles(provider: Provider) -> None:
    site = a_site(provider)
    site.group("admins", "tenant_admin")
    groups = ["gpu-users", "outsiders"]
    provider.person("mara-1", preferred_username="Mára.Lind@x", name="Mara Lind", groups=groups)
    browser = Client()
    way = sent_to(browser, "helix", after="/t/helix/bookings")
    query = parse_qs(urlsplit(way).query)
    assert query["code_challenge_method"] == ["S256"]
    assert len(query["code_challenge"][0]) == 43
    assert len(query["nonce"][0]) == len(query["state"][0]) == 43
    assert query["redirect_uri"] == [f"{portal_settings.PUBLIC_URL}/sso/helix/callback"]
    before = browser.cookies[portal_settings.SESSION_COOKIE_NAME].value
    back = provider.signs_in(way, "mara-1")
    answer = browser.get(back)
    assert answer["Location"] == "/t/helix/bookings", answer.content.decode()
    assert browser.get("/t/helix/bookings").status_code == 200
    assert browser.cookies[portal_settings.SESSION_COOKIE_NAME].value != before
    mara = person_of("mara-1")
    assert (mara.username, mara.first_name, mara.email) == ("mara.lind@helix", "Mara Lind", "")
    assert roles_of(mara) == {"folding-helix": "researcher"}
    with as_system():
        assert not Password.objects.filter(user=mara).exists()
        assert not SignOnAttempt.objects.exists()
        actions = set(AuditEntry.objects.filter(actor=mara).values_list("action", flat=True))
    assert {"account.created", "sign_on.connected", "membership.set", "sign_in.done"} <= actions
    assert browser.get(back).status_code == 422, "an answer counts once"


def test_roles_follow_the_groups_at_each_sign_in(provider: Provider) -> None:
    site, browser = a_site(provider), Client()
    site.group("admins", "tenant_admin")
    provider.person("mara-1", preferred_username="mara", groups=["gpu-users"])
    sign_in_by(provider, browser, "helix", "mara-1")
    mara = person_of("mara-1")
    provider.person("mara-1", preferred_username="renamed", groups=["admins"])
    sign_in_by(provider, Client(), "helix", "mara-1")
    assert roles_of(mara) == {"": "tenant_admin"}
    provider.person("mara-1", groups=[])
    gone = sign_in_by(provider, Client(), "helix", "mara-1")
    assert gone.status_code == 403
    assert "none of your groups has a role here" in gone.content.decode()
    assert roles_of(mara) == {}
    assert browser.get("/t/helix/bookings").status_code in (302, 404), "also the earlier session"


def test_a_person_without_a_role_leaves_nothing_behind(provider: Provider) -> None:
    a_site(provider)
    with as_system():
        before = User.objects.count()
    provider.person("nobody", groups=["*", "outsiders", 7])
    assert sign_in_by(provider, Client(), "helix", "nobody").status_code == 403
    with as_system():
        assert User.objects.count() == before
        assert not SignOnIdentity.objects.exists()


def test_the_last_admin_stays_and_is_informed(provider: Provider) -> None:
    site = a_site(provider)
    site.group("admins", "tenant_admin")
    provider.person("boss", name="Boss", groups=["admins"])
    sign_in_by(provider, Client(), "helix", "boss")
    with as_system():
        site.admin.delete()
    provider.person("boss", name="Boss", groups=["gpu-users"])
    browser = Client()
    sign_in_by(provider, browser, "helix", "boss")
    assert "You stay one, because there is no other" in browser.get("/account").content.decode()
    assert roles_of(person_of("boss")) == {"": "tenant_admin", "folding-helix": "researcher"}
    a_tenant_admin(site.tenant)
    sign_in_by(provider, browser, "helix", "boss")
    assert roles_of(person_of("boss")) == {"folding-helix": "researcher"}


def test_a_provider_opens_its_own_tenant_only(provider: Provider) -> None:
    helix, orion = a_site(provider, "helix"), a_site(provider, "orion")
    orion.group("orion-leads", "lead", "folding-orion")
    # The same issuer, subject, name and address are two people in two tenants.
    ada = a_member(a_project(a_tenant("third"))).user
    with as_owner():
        User.objects.filter(id=ada.pk).update(email="ada@example.org", username="ada@helix")
    claims = {"preferred_username": "ada", "email": "ada@example.org", "email_verified": True}
    provider.person("ada", **claims, groups=["gpu-users", "orion-leads"])
    browser = Client()
    sign_in_by(provider, browser, "helix", "ada")
    made = person_of("ada")
    assert made.pk != ada.pk
    assert made.username == "ada-2@helix"
    assert roles_of(made) == {"folding-helix": "researcher"}
    with as_system():
        identity = SignOnIdentity.objects.get(subject="ada")
        assert identity.tenant_id == helix.tenant.id
    key = browser.cookies[portal_settings.SESSION_COOKIE_NAME].value
    with as_system():
        held = Session.objects.get(digest=session_digest(key))
        assert held.only_tenant_id == helix.tenant.id
    # Somebody gives the account a role elsewhere; this provider's sessions don't open it.
    a_member(orion.folding, Role.LEAD, user=made)
    assert browser.get("/t/helix/bookings").status_code == 200
    assert browser.get("/t/orion/bookings").status_code == 404
    assert "Orion" not in browser.get("/account").content.decode()
    sign_in_by(provider, Client(), "orion", "ada")
    with as_system():
        assert SignOnIdentity.objects.filter(subject="ada").count() == 2


def test_answers_of_other_browsers_tenants_and_times_are_refused(provider: Provider) -> None:
    a_site(provider, "helix"), a_site(provider, "orion")
    provider.person("mara", groups=["gpu-users"])
    thief, browser = Client(), Client()
    back = provider.signs_in(sent_to(thief, "helix"), "mara")
    browser.get("/sso/helix")
    for answer in (
        browser.get(back),
        Client().get(back),
        thief.get(back.replace("/sso/helix/", "/sso/orion/")),
        browser.get("/sso/helix/callback"),
        browser.get("/sso/helix/callback?state=%00&code=x"),
        browser.get("/sso/helix/callback?state=%ED%A0%80&code=x&error=%0a"),
    ):
        assert answer.status_code == 422
        assert "began in another browser" in answer.content.decode()
    mixed = thief.get(back + "&iss=https://evil.example")
    assert "another provider" in mixed.content.decode()
    with as_system():
        assert not SignOnIdentity.objects.exists()
    back = provider.signs_in(sent_to(thief, "helix"), "mara")
    with as_owner():
        SignOnAttempt.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert "older than ten minutes" in thief.get(back).content.decode()
    denied = sent_to(thief, "helix")
    state = parse_qs(urlsplit(denied).query)["state"][0]
    said = thief.get(f"/sso/helix/callback?error=access_denied&state={state}").content.decode()
    assert "access_denied" in said
    back = provider.signs_in(sent_to(thief, "helix"), "mara")
    assert thief.get(back.replace("code=", "code=x")).status_code == 422
    # A browser whose session has ended gets a new one, to which the attempt is bound.
    stale = Client()
    stale.cookies[portal_settings.SESSION_COOKIE_NAME] = "a" * 32
    assert sign_in_by(provider, stale, "helix", "mara")["Location"] == "/account"
    ended = Client()
    ended.cookies[portal_settings.SESSION_COOKIE_NAME] = "a" * 32
    back = provider.signs_in(sent_to(ended, "helix"), "mara")
    assert ended.cookies[portal_settings.SESSION_COOKIE_NAME].value != "a" * 32
    assert ended.get(back)["Location"] == "/account"


def test_a_sign_in_leads_to_paths_of_the_portal_only(provider: Provider) -> None:
    a_site(provider)
    provider.person("mara", groups=["gpu-users"])
    browser = Client()
    for after in ("//evil.example", "https://evil.example", "/\\evil", "javascript:1"):
        found = browser.get("/sso", {"organisation": "helix", "next": after}).content.decode()
        assert 'href="/sso/helix?next=%2F"' in found
        answer = browser.get("/sso/helix", {"next": after})
        done = browser.get(provider.signs_in(answer["Location"], "mara"))
        assert done["Location"] == "/"


def test_closed_accounts_operators_and_second_factors_are_respected(provider: Provider) -> None:
    site = a_site(provider)
    provider.person("mara", groups=["gpu-users"])
    sign_in_by(provider, Client(), "helix", "mara")
    mara = person_of("mara")
    with as_owner():
        User.objects.filter(id=mara.pk).update(is_active=False)
    assert "account is closed" in sign_in_by(provider, Client(), "helix", "mara").content.decode()
    with as_owner():
        User.objects.filter(id=mara.pk).update(is_active=True, is_staff=True)
    assert "Operators sign in" in sign_in_by(provider, Client(), "helix", "mara").content.decode()
    # An account that exists is connected by its own session, never by a name or an address.
    with as_owner():
        SignOnIdentity.objects.all().delete()
    operator = Client()
    operator.force_login(an_operator("root"))
    way = operator.post("/sso/helix").context["url"]
    assert operator.get(provider.signs_in(way, "mara")).status_code == 403
    member = a_member(site.folding, Role.LEAD)
    browser = Client()
    browser.force_login(member.user)
    assert "Connect with Helix" in browser.get("/account").content.decode()
    assert Client().post("/sso/helix").status_code == 422
    way = browser.post("/sso/helix").context["url"]
    assert browser.get(provider.signs_in(way, "mara"))["Location"] == "/account"
    assert person_of("mara").pk == member.user_id
    assert roles_of(member.user) == {site.folding.slug: "researcher"}
    other = Client()
    other.force_login(a_member(site.folding).user)
    way = other.post("/sso/helix").context["url"]
    assert "has another account here" in other.get(provider.signs_in(way, "mara")).content.decode()


def test_an_admin_sets_it_up_on_the_page(provider: Provider) -> None:
    tenant, browser = a_tenant("helix"), Client()
    admin = a_tenant_admin(tenant)
    site = Site(tenant, a_project(tenant, "folding"), admin, browser)
    browser.force_login(admin.user)
    assert site.page in browser.get("/t/helix/organisation").content.decode()
    form = {"act": "save", "issuer": provider.issuer, "client_id": "portal"}
    assert "Enter the client secret" in browser.post(site.page, form).content.decode()
    assert browser.post(site.page, {**form, "secret": SECRET}).status_code == 302
    assert browser.post(site.page, {"act": "on"}).status_code == 422, "nobody would have a role"
    assert site.group("gpu-users", "researcher", "folding").status_code == 302
    assert browser.post(site.page, {"act": "on"}).status_code == 302
    provider.person("mara", groups=["gpu-users"])
    sign_in_by(provider, Client(), "helix", "mara")
    assert roles_of(person_of("mara")) == {"folding": "researcher"}
    assert "signed in: 1 person" in browser.get(site.page).content.decode()
    assert browser.post(site.page, {"act": "test"}).status_code == 302
    row = re.search(r'name="id" value="([-0-9a-f]+)"', browser.get(site.page).content.decode())
    assert row is not None
    assert browser.post(site.page, {"act": "group-remove", "id": row[1]}).status_code == 302
    assert sign_in_by(provider, Client(), "helix", "mara").status_code == 403
    browser.post(site.page, {"act": "off"})
    assert Client().get("/sso/helix").status_code == 404
    with as_system():
        log = set(AuditEntry.objects.filter(tenant=tenant).values_list("action", flat=True))
    assert {f"sign_on.{each}" for each in ("set", "on", "off", "group_added")} <= log


def test_who_may_not_set_it_up_and_what_is_refused(provider: Provider) -> None:
    site = a_site(provider)
    lead = Client()
    lead.force_login(a_member(site.folding, Role.LEAD).user)
    assert lead.get(site.page).status_code == 403
    foreign = Client()
    foreign.force_login(a_tenant_admin(a_tenant("orion")).user)
    assert foreign.get(site.page).status_code == foreign.post(site.page).status_code == 404
    shown = site.browser.get(site.page).content.decode()
    assert SECRET not in shown
    with as_system():
        row = SignOnProvider.objects.get()
        assert SECRET not in row.sealed_secret
        assert secret_open(site.tenant.id, row.sealed_secret) == SECRET
        assert secret_open(a_tenant("third").id, row.sealed_secret) is None
    form = {"act": "save", "client_id": "portal", "groups_claim": "groups"}
    for issuer, why in [
        ("", "Enter the address of the issuer"),
        ("http://169.254.169.254", "private or reserved"),
        ("http://10.0.0.1:80", "private or reserved"),
        ("http://[::ffff:10.0.0.1]/", "private or reserved"),
        ("file:///etc/passwd", "https://"),
        ("http://a@127.0.0.1", "no name or password"),
        ("http://127.0.0.1:1", "connection to 127.0.0.1 failed"),
        (f"http://localhost:{provider.port}", "has the issuer"),
        (f"{provider.issuer}/jwks?", "Enter the address of the issuer"),
        (f"{provider.issuer}/nowhere", "status 404"),
    ]:
        answer = site.browser.post(site.page, {**form, "issuer": issuer})
        if "localhost" in issuer and answer.status_code == 302:
            continue
        assert answer.status_code == 422, issuer
        assert why in answer.content.decode(), issuer
    for name, role, project in [
        ("", "researcher", site.folding.slug),
        ("x" * 201, "researcher", site.folding.slug),
        ("*", "tenant_admin", ""),
        ("a", "tenant_admin", site.folding.slug),
        ("a", "owner", site.folding.slug),
        ("gpu-users", "lead", site.folding.slug),
    ]:
        assert site.group(name, role, project).status_code == 422, (name, role)
    elsewhere = a_project(a_tenant("fourth"), "elsewhere")
    assert site.group("a", "lead", elsewhere.slug).status_code == 404


def test_the_sign_in_page_finds_the_provider(provider: Provider) -> None:
    a_site(provider)
    page = Client().get("/sign-in?next=/t/helix/bookings").content.decode()
    assert "/sso?next=%2Ft%2Fhelix%2Fbookings&amp;organisation=helix" in page
    found = Client().get("/sso?next=/t/helix/bookings&organisation=Helix%20").content.decode()
    assert "Continue to 127.0.0.1" in found
    unknown = Client().get("/sso?organisation=<b>").content.decode()
    assert "There is no single sign-on for “&lt;b&gt;”" in unknown


def test_an_admin_disables_people_over_rest_and_they_are_out_at_once(provider: Provider) -> None:
    site = a_site(provider)
    provider.person("mara", preferred_username="mara", name="Mara", groups=["gpu-users"])
    browser = Client()
    sign_in_by(provider, browser, "helix", "mara")
    mara = person_of("mara")
    api = Api(a_token(actor_now(site.admin.user_id, "helix")))
    token = Api(a_token(actor_now(mara.pk, "helix")))
    (row,) = [each for each in said(api.get("people"))["items"] if each["is_connected"]]
    assert row == {
        "username": "mara@helix",
        "name": "Mara",
        "is_active": True,
        "is_connected": True,
        "is_service_account": False,
        "is_tenant_admin": False,
        "roles": [{"project": "folding-helix", "role": "researcher"}],
    }
    out, back = {"is_active": False}, {"is_active": True}
    assert token.put("people/mara@helix", out).status_code == 404
    assert token.get("people").status_code == 403
    assert said(api.put("people/mara@helix", out))["is_active"] is False
    assert said(api.put("people/mara@helix", out))["is_active"] is False, "idempotent"
    assert browser.get("/t/helix/bookings").status_code == 404
    assert token.get("me").status_code == 401
    refused = sign_in_by(provider, Client(), "helix", "mara")
    assert "has disabled you there" in refused.content.decode()
    assert api.put(f"people/{site.admin.user.username}", out).status_code == 409, "not oneself"
    assert api.put("people/nobody", out).status_code == 404
    assert api.put("people/mara@helix", {"is_active": "no"}).status_code in (400, 422)
    assert roles_of(mara) == {"folding-helix": "researcher"}, "roles wait"
    api.put("people/mara@helix", back)
    assert browser.get("/t/helix/bookings").status_code == 200
    assert token.get("me").status_code == 200
    with as_system():
        log = set(AuditEntry.objects.filter(tenant=site.tenant).values_list("action", flat=True))
    assert {"member.disabled", "member.enabled"} <= log


def test_a_disabled_admin_does_not_count_and_nobody_disables_the_last(provider: Provider) -> None:
    site, out = a_site(provider), {"is_active": False}
    first, second = site.admin, a_tenant_admin(site.tenant)
    api = Api(a_token(actor_now(second.user_id, "helix")))
    assert api.put(f"people/{first.user.username}", out).status_code == 200
    assert said(api.put(f"people/{second.user.username}", out))["code"] == "own_account"
    with as_system(), pytest.raises(Refused, match="last_admin"):
        require_another_admin(second)


def test_a_verified_address_of_userinfo_gets_mail_and_opens_nothing(provider: Provider) -> None:
    site = a_site(provider)
    with as_owner():
        held = SignOnProvider.objects.get(tenant=site.tenant)
        held.endpoints["userinfo"] = f"{provider.issuer}/userinfo"
        held.save(update_fields=["endpoints"])
    address = "mara@uni.example"
    groups = ["gpu-users"]
    provider.person("mara-9", email=address, email_verified=True, groups=groups)
    assert sign_in_by(provider, Client(), "helix", "mara-9").status_code == 302
    user = person_of("mara-9")
    assert user.email == "", "it would open invitations of other tenants"
    with as_system():
        assert provider_addresses([(site.tenant.id, user.pk)]) == {(site.tenant.id, user.pk): address}
        assert provider_addresses([(a_tenant("orbit").id, user.pk)]) == {}
    provider.person("mara-9", email=address, email_verified=False, groups=groups)
    sign_in_by(provider, Client(), "helix", "mara-9")
    with as_system():
        assert SignOnIdentity.objects.get(subject="mara-9").email == ""
