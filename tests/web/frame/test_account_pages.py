"""A person's own account: where they are signed in, the password, tokens all at once."""

import re
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import ApiToken, AuditEntry, Session, User
from tenants.platform.wall import tenant_tx
from tenants.services import token_create
from tenants.services.sign_in.passwords import password_holder, password_prove
from tests.api.builders import a_site, said
from tests.builders import (
    PASSWORD,
    a_member,
    a_project,
    a_session,
    a_user,
    an_actor,
    an_operator,
)
from tests.roles import as_system

pytestmark = pytest.mark.django_db
NEW = "another horse, another battery"


def signed_in(user: User) -> Client:
    client = Client(headers={"User-Agent": "Firefox/140.0 Linux"})
    form = {"username": user.username, "password": PASSWORD}
    assert client.post("/sign-in", form).status_code == 302
    return client


def text(content: bytes) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", content.decode())).split())


def password(current: str = PASSWORD, new: str = NEW, again: str = NEW) -> dict[str, str]:
    return {"act": "password", "current": current, "password": new, "again": again}


def test_a_person_sees_and_ends_their_sessions_and_the_log_says_so() -> None:
    member = a_member(a_project())
    here, there = signed_in(member.user), signed_in(member.user)
    a_session(a_user())
    page = f"/t/{member.tenant.slug}/settings"
    for shown in (page, "/account"):
        words = text(here.get(shown).content)
        assert words.count("Firefox on Linux") == 3, "two rows and one button"
        assert "This browser" in words
    key = there.cookies["portal-session"].value
    found = re.search(r'name="session" value="([^"]+)"', here.get(page).content.decode())
    assert found is not None
    answer = here.post("/account", {"act": "end", "session": found[1], "next": page})
    assert answer["Location"] == page
    assert there.get(page)["Location"].startswith("/sign-in"), key
    signed_in(member.user)
    here.post("/account", {"act": "end-others"})
    with as_system():
        assert Session.objects.filter(user=member.user).count() == 1
    assert here.get(page).status_code == 200
    with tenant_tx(member.tenant_id):
        actions = [entry.action for entry in AuditEntry.objects.order_by("id")]
    assert actions[-2:] == ["session.ended", "session.all_ended"]


def test_a_session_of_somebody_else_is_like_none() -> None:
    client = signed_in(a_user())
    foreign = a_session(a_user())
    pages = {
        text(client.post("/account", {"act": "end", "session": each}).content)
        for each in (str(foreign.id), "00000000-0000-0000-0000-000000000000", "x")
    }
    assert len(pages) == 1
    with as_system():
        assert Session.objects.filter(id=foreign.id).exists()


def test_a_new_password_signs_out_everywhere_but_here() -> None:
    user = a_user()
    here, there = signed_in(user), signed_in(user)
    key = here.cookies["portal-session"].value
    assert here.post("/account", password())["Location"] == "/account"
    assert here.get("/account").status_code == 200
    assert here.cookies["portal-session"].value != key
    assert there.get("/account")["Location"].startswith("/sign-in")
    assert password_holder(password_prove(user.username, NEW)) == user


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (password(current="wrong"), "The current password is wrong."),
        (password(again="else"), "passwords don't match"),
        (password(new="short", again="short"), "too short"),
        (password(new="x" * 129, again="x" * 129), "at most 128"),
        ({"act": "password"}, "The current password is wrong."),
    ],
)
def test_a_password_that_does_not_do_is_told_beside_its_field(form: dict[str, str], says: str) -> None:
    user = a_user()
    answer = signed_in(user).post("/account", form)
    assert answer.status_code == 422
    assert says in text(answer.content)
    assert NEW not in answer.content.decode()
    assert password_holder(password_prove(user.username, PASSWORD)) == user


def test_who_finds_a_browser_signed_in_cant_try_the_password_out() -> None:
    user = a_user()
    client = signed_in(user)
    said = [client.post("/account", password(current="wrong")).content for _ in range(7)]
    assert "Too many attempts" in text(said[-1])
    assert "Too many attempts" in text(client.post("/account", password()).content)


def test_everybody_has_an_account_page_and_strangers_sign_in_first() -> None:
    assert Client().get("/account")["Location"].startswith("/sign-in?next=/account")
    for user in (a_user(), an_operator(), a_member(a_project()).user):
        assert signed_in(user).get("/account").status_code == 200


def test_all_own_tokens_are_revoked_at_once_and_nobody_elses() -> None:
    project = a_project()
    mine, other = a_member(project), a_member(project)
    for member in (mine, mine, other):
        with tenant_tx(project.tenant_id):
            token_create(actor=an_actor(member), name="CI", days=9, now=timezone.now())
    client = signed_in(mine.user)
    page = f"/t/{project.tenant.slug}/settings"
    assert "Revoke all 2" in text(client.get(page).content)
    assert "Revoke 2 tokens" in text(client.post(page, {"act": "revoke-all"}).content)
    client.post(page, {"act": "revoke-all", "sure": "1"})
    with tenant_tx(project.tenant_id):
        live = ApiToken.objects.filter(revoked=None)
        assert [token.user_id for token in live] == [other.user_id]


@pytest.mark.turn
def test_people_download_their_own_data_and_only_theirs() -> None:
    site = a_site()
    mine = {"project": "folding", "tier": "standard", "request": "1 h100 for 1h"}
    number = said(site.researcher.post("bookings", mine))["number"]
    said(site.lead.post("bookings", mine))
    client = Client()
    client.force_login(site.people["researcher"])
    answer = client.get("/account/data")
    assert "attachment" in answer["Content-Disposition"]
    (tenant,) = answer.json()["tenants"]
    assert [each["booking"] for each in tenant["bookings"]] == [number]
    assert tenant["roles"][0]["role"] == "researcher"
    assert {each["action"] for each in tenant["log"]} >= {"booking.request"}
    assert site.people["lead"].username not in answer.content.decode()
    over_rest = said(site.researcher.get("me/data"))
    assert over_rest["account"]["username"] == site.people["researcher"].username
    assert over_rest["tenants"][0]["bookings"] == tenant["bookings"]
