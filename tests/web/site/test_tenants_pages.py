"""The pages about people, quotas, tiers, settings and tenants, as a browser uses them."""

import re
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import ApiToken, GpuClass, Membership, Project, Tenant, Tier, User
from tenants.platform.wall import operator_tx, tenant_tx
from tenants.services import token_verify
from tests.builders import (
    a_gpu_class,
    a_member,
    a_project,
    a_quota,
    a_tenant,
    a_tenant_admin,
    a_tier,
    a_user,
    actor_now,
    an_operator,
)
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
SHARE = {"act": "set", "gpu_class": "h100", "project": "vision", "guaranteed": "", "borrow": ""}
HOSTILE = "<script>alert('x')</script>\"'&{{7*7}}"


@pytest.fixture
def tenant() -> Tenant:
    return a_tenant("own")


@pytest.fixture
def admin(client: Client, tenant: Tenant) -> Client:
    client.force_login(a_tenant_admin(tenant).user)
    return client


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(an_operator())
    return client


def _text(content: bytes) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", content.decode())).split())


def test_an_admin_invites_and_the_person_accepts(admin: Client, tenant: Tenant) -> None:
    project, user = a_project(tenant, "vision"), a_user("mara")
    form = {"act": "invite", "project": "vision", "to": "Mara", "role": "lead"}
    answer = admin.post("/t/own/people", form, follow=True)
    assert "Invited mara to Vision as project lead." in _text(answer.content)
    with tenant_tx(tenant.id):
        assert not Membership.objects.filter(user=user).exists()
    invited = Client()
    invited.force_login(user)
    assert "Project lead in Vision of Own" in _text(invited.get("/").content)
    found = re.search(r'name="invitation" value="([^"]+)"', invited.get("/").content.decode())
    assert found is not None
    answer = invited.post("/account", {"act": "accept", "invitation": found[1], "next": "/"})
    assert answer["Location"] == "/"
    assert actor_now(user.id, "own").role_in(project.id) == "lead"
    assert invited.get("/")["Location"] == "/t/own/"
    # Once only.
    again = invited.post("/account", {"act": "accept", "invitation": found[1]})
    assert again.status_code == 404


def test_the_page_says_the_same_whether_or_not_there_is_such_an_account(
    admin: Client, tenant: Tenant
) -> None:
    a_project(tenant, "vision")
    a_user("mara", first_name="Mara Lind")
    said = []
    for name in ("mara", "nobody"):
        form = {"act": "invite", "project": "vision", "to": name, "role": "lead"}
        page = _text(admin.post("/t/own/people", form, follow=True).content)
        assert "Mara Lind" not in page
        said.append(page.replace(name, "NAME"))
        taken_back = re.search(
            r'name="invitation" value="([^"]+)"', admin.get("/t/own/people").content.decode()
        )
        assert taken_back is not None
        revoke = {"act": "revoke", "invitation": taken_back[1]}
        admin.post("/t/own/people", revoke, follow=True)
    assert said[0] == said[1]


def test_a_role_is_changed_beside_the_name(admin: Client, tenant: Tenant) -> None:
    member = a_member(a_project(tenant, "vision"), "viewer")
    form = {"act": "role", "membership": str(member.id), "role": "researcher"}
    answer = admin.post("/t/own/people", form, follow=True)
    assert f"{member.user.username} is now researcher." in _text(answer.content)


@pytest.mark.parametrize("act", [{"act": "remove"}, {"act": "role", "role": "viewer"}])
def test_a_project_loses_its_only_lead_only_when_that_was_said(
    admin: Client, tenant: Tenant, act: dict[str, str]
) -> None:
    project = a_project(tenant, "vision")
    member = a_member(project, "lead")
    a_member(project, "lead", user=a_user(is_active=False))
    form = act | {"membership": str(member.id)}
    asked = admin.post("/t/own/people", form)
    assert asked.status_code == 200
    assert "Leave Vision without a lead?" in _text(asked.content)
    assert actor_now(member.user_id, "own").role_in(project.id) == "lead"
    for name, value in form.items():
        assert f'name="{name}" value="{value}"' in asked.content.decode()
    assert admin.post("/t/own/people", form | {"sure": "1"}).status_code == 302
    with tenant_tx(tenant.id):
        assert not Membership.objects.filter(id=member.id, role="lead").exists()


def test_people_are_found_by_name_and_leave_by_themselves(admin: Client, tenant: Tenant) -> None:
    vision, folding = a_project(tenant, "vision"), a_project(tenant, "folding")
    member = a_member(vision, user=a_user("mara", first_name="Mara Lind"))
    a_member(folding, "lead")
    found = admin.get("/t/own/people?q=LIND+mar").content
    assert found.count(b'id="person-') == 1
    assert b"Mara Lind" in found
    opened = _text(admin.get("/t/own/people?edit=mara").content)
    assert "Disable Mara Lind" in opened
    assert "Disable Mara Lind" not in _text(found)
    of_folding = admin.get("/t/own/people?project=folding").content
    assert b"Mara Lind" not in of_folding
    for page in ("0", "9" * 18, "x"):
        assert admin.get(f"/t/own/people?page={page}").status_code == 200
    assert "Nobody found" in _text(admin.get("/t/own/people?q=%00%25").content)
    own = Client()
    own.force_login(member.user)
    assert "Vision of Own" in _text(own.get("/account").content)
    form = {"act": "leave", "membership": str(member.id)}
    assert "your only role in Own" in _text(own.post("/account", form).content)
    outsider = Client()
    outsider.force_login(a_user())
    assert outsider.post("/account", form | {"sure": "1"}).status_code == 404
    assert own.get("/t/own/people").status_code == 200
    assert own.post("/account", form | {"sure": "1"}).status_code == 302
    assert own.get("/t/own/people").status_code == 404


def test_a_member_is_removed_when_it_was_said_what_they_lose(admin: Client, tenant: Tenant) -> None:
    project = a_project(tenant, "vision")
    first, _ = a_member(project, "lead"), a_member(project, "lead")
    form = {"act": "remove", "membership": str(first.id)}
    said = _text(admin.post("/t/own/people", form).content)
    assert "without a lead" not in said
    assert "It is their only role in the organisation" in said
    with tenant_tx(tenant.id):
        assert Membership.objects.filter(id=first.id).exists()
    assert admin.post("/t/own/people", form | {"sure": "1"}).status_code == 302
    with tenant_tx(tenant.id):
        assert not Membership.objects.filter(id=first.id).exists()


def test_a_project_is_closed_when_it_was_said_for_how_many(admin: Client, tenant: Tenant) -> None:
    project = a_project(tenant, "vision")
    a_member(project, "lead"), a_member(project)
    form = {"act": "close", "project": "vision"}
    assert "Close Vision for 2 people" in _text(admin.post("/t/own/people", form).content)
    with tenant_tx(tenant.id):
        assert Project.objects.get().is_open
    assert admin.post("/t/own/people", form | {"sure": "1"}).status_code == 302
    with tenant_tx(tenant.id):
        assert not Project.objects.get().is_open


def test_a_tenant_is_closed_only_when_its_losses_were_said(operator: Client, tenant: Tenant) -> None:
    a_tenant_admin(tenant)
    a_member(a_project(tenant))
    form = {"act": "close", "tenant": str(tenant.id)}
    asked = operator.post("/ops/tenants", form)
    assert "Close Own for 2 people" in _text(asked.content)
    with as_system():
        assert Tenant.objects.get(id=tenant.id).is_open
    assert operator.post("/ops/tenants", form | {"sure": "1"}).status_code == 302
    with as_system():
        assert not Tenant.objects.get(id=tenant.id).is_open


def test_what_was_typed_wrong_is_told_beside_its_field(admin: Client, tenant: Tenant) -> None:
    a_project(tenant, "vision")
    form = {"act": "invite", "project": "vision", "to": "no'body", "role": "lead"}
    answer = admin.post("/t/own/people", form)
    assert answer.status_code == 422
    assert "Give an e-mail address or a sign-in name" in _text(answer.content)
    assert 'value="no&#x27;body"' in answer.content.decode()
    assert "aria-invalid" in answer.content.decode()


def test_the_last_admin_reads_why_they_stay(client: Client, tenant: Tenant) -> None:
    last = a_tenant_admin(tenant)
    client.force_login(last.user)
    answer = client.post("/t/own/people", {"act": "remove", "membership": str(last.id)})
    assert "last admin" in _text(answer.content)
    assert actor_now(last.user_id, "own").is_tenant_admin


@pytest.mark.parametrize("bad", ["", "not-an-id", "00000000-0000-0000-0000-000000000000", "\x00"])
def test_a_mangled_membership_is_a_missing_one(admin: Client, bad: str) -> None:
    assert admin.post("/t/own/people", {"act": "remove", "membership": bad}).status_code == 404


def test_a_foreign_membership_reads_like_an_invented_one(admin: Client) -> None:
    foreign = a_member(a_project())
    said = {
        _text(admin.post("/t/own/people", {"act": "remove", "membership": each}).content)
        for each in (str(foreign.id), "00000000-0000-0000-0000-000000000000")
    }
    assert len(said) == 1


@pytest.mark.parametrize("act", ["", "delete-all", "__class__"])
def test_a_form_that_nobody_made_does_nothing(admin: Client, act: str) -> None:
    assert admin.post("/t/own/people", {"act": act}).status_code == 422


def test_a_member_sees_no_form_and_no_other_project(client: Client, tenant: Tenant) -> None:
    project = a_project(tenant, name="Vision")
    a_project(tenant, name="Secret project")
    client.force_login(a_member(project, "researcher").user)
    page = client.get("/t/own/people").content.decode()
    assert "Vision" in page
    assert "Secret project" not in page
    assert 'name="act"' not in page


def test_an_admin_makes_a_project_once(admin: Client, tenant: Tenant) -> None:
    form = {"act": "project", "name": "Vision", "slug": "vision"}
    assert admin.post("/t/own/people", form).status_code == 302
    again = admin.post("/t/own/people", form)
    assert again.status_code == 422
    assert "Another project has this short name." in _text(again.content)


def test_guaranteed_cores_count_as_no_gpus(client: Client) -> None:
    tenant = a_tenant("own")
    a_quota(tenant, guaranteed=8)
    cores = a_gpu_class("cpu", label="CPU cores")
    with as_owner():
        GpuClass.objects.filter(slug="cpu").update(kind=GpuClass.Kind.HOST)
    a_quota(tenant, cores, guaranteed=24)
    client.force_login(an_operator())
    page = flat(client.get("/ops/tenants").content.decode())
    assert "0 of 8 guaranteed" in page
    assert "0 of 24 CPU cores guaranteed" in page


def test_names_are_text_on_every_page(client: Client) -> None:
    tenant = a_tenant("own", name=HOSTILE)
    project = a_project(tenant, name=HOSTILE)
    user = a_user("<b>mara</b>", first_name=HOSTILE)
    a_tenant_admin(tenant, user=user)
    a_member(project, user=a_user("x", first_name=HOSTILE))
    a_gpu_class("odd", label=HOSTILE)
    a_quota(tenant, guaranteed=8)
    tier = a_tier("odd")
    with as_system():
        Tier.objects.filter(slug=tier.slug).update(name=HOSTILE, description=HOSTILE)
        with as_owner():
            User.objects.filter(id=user.id).update(is_staff=True)
    client.force_login(user)
    with tenant_tx(tenant.id):
        ApiToken.objects.create(
            tenant=tenant,
            user=user,
            name=HOSTILE,
            digest=b"1" * 32,
            prefix="gpup_pat_<b>",
            created=timezone.now(),
            expires=timezone.now(),
        )
    own = [f"/t/own/{page}" for page in ("people", "quotas", "tiers", "settings")]
    for page in [*own, "/ops/tiers", "/ops/quotas", "/ops/tenants"]:
        content = client.get(page).content.decode()
        assert "<script>alert" not in content, page
        assert "&lt;script&gt;alert" in content, page
        assert "<b>mara" not in content, page
        assert "49" not in re.findall(r"script\S*49", content), page


TIER = {
    "act": "set",
    "is_new": "1",
    "slug": "night",
    "name": "Night",
    "priority": "5",
    "grace": "10m",
    "protected": "1h 30m",
    "max_duration": "12h",
    "advance": "7d",
    "credit_cap": "2h",
    "more_times": "1",
    "more_time": "5m",
    "max_pauses": "",
    "method": "signal",
    "description": "Runs while others sleep.",
    "pausable": "on",
    "replaces": "on",
}


def test_an_operator_makes_a_tier_that_all_can_read(operator: Client, tenant: Tenant) -> None:
    assert operator.post("/ops/tiers", TIER).status_code == 302
    tier = Tier.objects.get(slug="night")
    assert tier.replace_on_lost
    assert (tier.pausable, tier.protected_seconds, tier.max_duration_seconds) == (
        True,
        5400,
        43_200,
    )
    assert (tier.pause_method, tier.max_pauses, tier.more_times) == ("signal", None, 1)
    assert (tier.credit_cap_seconds, tier.more_time_seconds) == (7200, 300)
    reader = Client()
    reader.force_login(a_member(a_project(tenant), "viewer").user)
    text = _text(reader.get("/t/own/tiers").content)
    assert "Runs while others sleep." in text
    assert "1 h 30 min" in text


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("grace", "ten minutes"),
        ("max_duration", "100d"),
        ("priority", "1e3"),
        ("max_pauses", "0"),
        ("method", "ask nicely"),
        ("more_time", "0"),
        ("more_times", "99"),
        ("name", ""),
        ("slug", "A B"),
    ],
)
def test_a_tier_that_makes_no_sense_comes_back_as_typed(operator: Client, field: str, text: str) -> None:
    answer = operator.post("/ops/tiers", {**TIER, field: text})
    assert answer.status_code == 422
    assert "Runs while others sleep." in answer.content.decode()
    assert not Tier.objects.filter(slug="night").exists()


def test_a_tier_says_what_giving_up_late_costs(operator: Client, tenant: Tenant) -> None:
    sent = {**TIER, "notice": "2h", "late_share": "50"}
    assert operator.post("/ops/tiers", {**sent, "late_share": "101"}).status_code == 422
    assert operator.post("/ops/tiers", sent).status_code == 302
    reader = Client()
    reader.force_login(a_member(a_project(tenant), "viewer").user)
    shown = _text(reader.get("/t/own/tiers").content)
    assert "GPUs that are given up less than 2 h before cost 50 %" in shown


def test_a_new_tier_never_overwrites_an_old_one(operator: Client) -> None:
    a_tier("night", priority=77)
    answer = operator.post("/ops/tiers", TIER)
    assert "Another tier already has this short name." in _text(answer.content)
    changed = {key: text for key, text in TIER.items() if key != "is_new"}
    assert Tier.objects.get(slug="night").priority == 77
    assert operator.post("/ops/tiers", {**changed, "grace": "x"}).status_code == 422
    said = _text(operator.post("/ops/tiers", changed).content)
    assert "Priority: 77 → 5" in said
    assert Tier.objects.get(slug="night").priority == 77
    assert operator.post("/ops/tiers", changed | {"sure": "1"}).status_code == 302
    assert Tier.objects.get(slug="night").priority == 5
    # What changes nothing needs no question.
    assert operator.post("/ops/tiers", changed).status_code == 302


def test_a_tier_page_takes_no_changes_from_members(client: Client, tenant: Tenant) -> None:
    client.force_login(a_tenant_admin(tenant).user)
    assert client.post("/t/own/tiers", TIER).status_code == 405
    assert client.post("/ops/tiers", TIER).status_code == 404
    assert not Tier.objects.filter(slug="night").exists()


def test_a_token_is_shown_once_and_works(client: Client, tenant: Tenant) -> None:
    member = a_member(a_project(tenant))
    client.force_login(member.user)
    answer = client.post("/t/own/settings", {"act": "token", "name": "CI", "days": "30", "scope": ["read"]})
    assert answer.status_code == 200
    (clear,) = set(re.findall(r"gpup_pat_[0-9A-Za-z]{38}", answer.content.decode()))
    holder = token_verify(clear, now=timezone.now())
    assert holder is not None
    assert holder.user_id == member.user_id
    assert holder.scopes == {"read"}
    nothing = {"act": "token", "name": "CI", "days": "30"}
    assert "Choose at least one" in _text(client.post("/t/own/settings", nothing).content)
    rotated = client.post("/t/own/settings", {"act": "rotate", "token": str(holder.token_id)})
    successor = token_verify(
        re.findall(r"gpup_pat_[0-9A-Za-z]{38}", rotated.content.decode())[0], now=timezone.now()
    )
    assert successor is not None
    assert successor.scopes == {"read"}
    later = client.get("/t/own/settings").content.decode()
    assert clear not in later
    assert clear[:13] in later
    form = {"act": "revoke", "token": str(holder.token_id)}
    said = _text(client.post("/t/own/settings", form).content)
    assert "Revoke CI? CI: last used" in said
    assert "Programs that use it stop working" in said
    assert token_verify(clear, now=timezone.now()) is not None
    assert client.post("/t/own/settings", form | {"sure": "1"}).status_code == 302
    assert token_verify(clear, now=timezone.now()) is None


@pytest.mark.parametrize(
    ("name", "days"), [("", "30"), ("CI", "0"), ("CI", "366"), ("CI", "x"), ("C\x00I", "30")]
)
def test_a_senseless_token_is_not_made(client: Client, tenant: Tenant, name: str, days: str) -> None:
    client.force_login(a_member(a_project(tenant)).user)
    form = {"act": "token", "name": name, "days": days, "scope": "read"}
    assert client.post("/t/own/settings", form).status_code == 422
    with tenant_tx(tenant.id):
        assert not ApiToken.objects.exists()


def test_another_persons_token_is_not_there_but_an_admins_to_end(client: Client, tenant: Tenant) -> None:
    project = a_project(tenant)
    owner, colleague, boss = a_member(project), a_member(project), a_tenant_admin(tenant)
    client.force_login(owner.user)
    client.post("/t/own/settings", {"act": "token", "name": "Robot 7", "days": "30", "scope": "read"})
    with tenant_tx(tenant.id):
        token = ApiToken.objects.get()
    form = {"act": "revoke", "token": str(token.id)}
    client.force_login(colleague.user)
    assert "Robot 7" not in client.get("/t/own/settings").content.decode()
    assert client.post("/t/own/settings", form).status_code == 404
    client.force_login(boss.user)
    everybodys = "/t/own/organisation/tokens"
    assert "Robot 7" not in client.get("/t/own/settings").content.decode()
    assert "Robot 7" in client.get(everybodys).content.decode()
    assert b"stop working" in client.post(everybodys, form).content, "it asks first"
    assert client.post(everybodys, form | {"sure": "1"}).status_code == 302
    client.force_login(colleague.user)
    assert client.get(everybodys).status_code == 403


def test_a_zone_chosen_is_the_zone_shown(client: Client, tenant: Tenant) -> None:
    member = a_member(a_project(tenant))
    client.force_login(member.user)
    page = client.post("/t/own/settings", {"act": "zone", "zone": "Asia/Kathmandu"}, follow=True)
    assert "UTC+5:45" in _text(page.content)
    assert client.post("/t/own/settings", {"act": "zone", "zone": "X/Y"}).status_code == 422


def test_which_mails_one_gets_is_chosen_and_shown(client: Client, tenant: Tenant) -> None:
    member = a_member(a_project(tenant))
    client.force_login(member.user)
    page = client.post("/t/own/settings", {"act": "mails", "mails": "urgent"}, follow=True)
    assert '<option value="urgent" selected>' in page.content.decode()
    assert "no e-mail address" in _text(page.content)
    assert client.post("/t/own/settings", {"act": "mails", "mails": "some"}).status_code == 422


def test_an_operator_sets_up_a_tenant_from_nothing(operator: Client) -> None:
    account = {
        "act": "account",
        "username": "mara.lind",
        "name": "Mara Lind",
        "email": "",
        "password": "a long enough one",
    }
    assert operator.post("/ops/tenants", account).status_code == 302
    create = {"act": "create", "name": "Helix", "slug": "helix", "username": "mara.lind"}
    assert operator.post("/ops/tenants", create).status_code == 302
    assert "mara.lind" in _text(operator.get("/ops/tenants").content)
    reader = Client()
    form = {"username": "mara.lind", "password": "a long enough one"}
    assert reader.post("/sign-in", form).status_code == 302
    assert reader.get("/t/helix/people").status_code == 200
    with operator_tx():
        helix = Tenant.objects.get(slug="helix")
    operator.post("/ops/tenants", {"act": "close", "tenant": str(helix.id), "sure": "1"})
    assert reader.get("/t/helix/people").status_code == 404


def test_an_operator_invites_an_admin_who_is_none_before_they_accept(
    operator: Client, tenant: Tenant
) -> None:
    user = a_user("mara")
    form = {"act": "admin", "tenant": str(tenant.id), "to": "mara"}
    page = _text(operator.post("/ops/tenants", form, follow=True).content)
    assert "invited: mara" in page
    with tenant_tx(tenant.id):
        assert not Membership.objects.filter(user=user).exists()
    form["to"] = "no body"
    assert operator.post("/ops/tenants", form).status_code == 422


def test_a_first_password_is_never_sent_back(operator: Client) -> None:
    form = {"act": "account", "username": "", "name": "Mara", "password": "a long enough one"}
    answer = operator.post("/ops/tenants", form)
    assert answer.status_code == 422
    assert "a long enough one" not in answer.content.decode()
