"""Shares, weights and caps as pages show and take them."""

import re
from html import unescape

import pytest
from django.test import Client

from tenants.models import Project, Quota, Tenant
from tenants.platform.wall import tenant_tx
from tests.builders import (
    UNITS_PER_GPU,
    a_gpu_class,
    a_member,
    a_project,
    a_quota,
    a_tenant,
    a_tenant_admin,
    a_tier,
    an_operator,
)
from tests.builders_allocation import a_policy

pytestmark = pytest.mark.django_db


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


def _sent(owner: str = "vision", gpu_class: str = "h100", **values: str) -> dict[str, str]:
    """What the page's form sends for a row of which these values were typed."""
    return {"act": "save"} | {f"{name}:{gpu_class}:{owner}": value for name, value in values.items()}


def _share(owner: str = "vision", **values: str) -> dict[str, str]:
    return _sent(owner, **{"guaranteed": "", "borrow": "", "lend": ""} | values)


def _more(owner: str = "vision", **values: str) -> dict[str, str]:
    return _sent(owner, **{"weight": "3", "cap_gpu_hours": "500", "cap_days": "7"} | values)


def _text(content: bytes) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", content.decode())).split())


def test_a_quota_is_split_in_gpus_and_kept_in_units(admin: Client, tenant: Tenant) -> None:
    project = a_project(tenant, "vision")
    a_quota(tenant, guaranteed=8, limit=12)
    form = _share(guaranteed="2.5", lend="1.5")
    answer = admin.post("/t/own/quotas", form, follow=True)
    assert "2.5 assigned to projects, 5.5 unassigned" in _text(answer.content)
    with tenant_tx(tenant.id):
        quota = Quota.objects.get(project=project)
    assert (quota.guaranteed_units, quota.limit_units) == (140_000, None)
    assert quota.lend_limit_units == 84_000
    said = "Vision, H100: 2.5 guaranteed, may borrow without a limit, lends at most 1.5."
    assert said in _text(answer.content)


def test_the_page_says_for_how_long_a_tier_that_is_never_paused_borrows(
    admin: Client, tenant: Tenant
) -> None:
    a_tier("standard")
    a_tier("flex", pausable=True)
    a_policy(borrow_windows={"*": 4 * 3_600})
    page = _text(admin.get("/t/own/quotas").content)
    assert "borrow for a limited time: Standard for at most 4 h." in page


def test_too_large_a_share_says_by_how_much_and_keeps_what_was_typed(admin: Client, tenant: Tenant) -> None:
    a_project(tenant, "vision")
    a_quota(tenant, guaranteed=8)
    form = _share(guaranteed="9", borrow="1")
    answer = admin.post("/t/own/quotas", form)
    assert answer.status_code == 422
    assert "9 is 1 too many: 8 would work" in _text(answer.content)
    assert re.search(r'name="guaranteed:h100:vision"[^>]*value="9"[^>]*aria-invalid', answer.content.decode())


@pytest.mark.parametrize("text", ["NaN", "-1", "1e9", "", "1,5", "9" * 400, "\x00", "0.333333"])
def test_a_bad_number_changes_nothing(admin: Client, tenant: Tenant, text: str) -> None:
    a_project(tenant, "vision")
    a_quota(tenant, guaranteed=8)
    form = _share(guaranteed=text)
    assert admin.post("/t/own/quotas", form).status_code == 422
    with tenant_tx(tenant.id):
        assert Quota.objects.count() == 1


def test_another_tenants_project_gets_no_share(admin: Client, tenant: Tenant) -> None:
    a_project(a_tenant(), "theirs")
    a_quota(tenant, guaranteed=8)
    foreign = admin.post("/t/own/quotas", _share("theirs", guaranteed="1"))
    unknown = admin.post("/t/own/quotas", _share("not-there", guaranteed="1"))
    assert foreign.status_code == unknown.status_code == 404
    assert _text(foreign.content) == _text(unknown.content)


@pytest.mark.parametrize("role", ["viewer", "researcher", "lead"])
def test_members_read_their_share_and_may_not_change_it(client: Client, tenant: Tenant, role: str) -> None:
    project = a_project(tenant, "vision", name="Vision")
    a_project(tenant, name="Secret project")
    a_quota(tenant, guaranteed=8)
    a_quota(tenant, project=project, guaranteed=2)
    client.force_login(a_member(project, role).user)
    page = client.get("/t/own/quotas").content.decode()
    assert "2 guaranteed" in page
    assert "Secret project" not in page
    assert 'name="guaranteed' not in page
    assert "Save quotas" not in page
    assert client.post("/t/own/quotas", _share(guaranteed="3")).status_code == 403


def test_an_operator_gives_a_tenant_its_share(operator: Client, tenant: Tenant) -> None:
    a_gpu_class()
    form = _share(str(tenant.id), guaranteed="16", borrow="8", lend="4")
    assert operator.post("/ops/quotas", form).status_code == 302
    with tenant_tx(tenant.id):
        quota = Quota.objects.get(project=None)
    assert (quota.guaranteed_units, quota.limit_units) == (16 * UNITS_PER_GPU, 24 * UNITS_PER_GPU)
    assert quota.lend_limit_units == 4 * UNITS_PER_GPU
    assert "16" in _text(operator.get("/ops/quotas").content)
    assert operator.post("/ops/quotas", _share("x", guaranteed="1")).status_code == 404


def _vision(tenant: Tenant) -> Project:
    project = a_project(tenant, "vision")
    a_quota(tenant, guaranteed=8)
    a_quota(tenant, project=project, guaranteed=2, limit=4, lend=1)
    return project


def test_a_weight_and_a_cap_are_set_and_the_share_stays(admin: Client, tenant: Tenant) -> None:
    project = _vision(tenant)
    answer = admin.post("/t/own/quotas", _more(), follow=True)
    assert "weight 3, at most 500 GPU-hours in any 7 days" in _text(answer.content)
    with tenant_tx(tenant.id):
        quota = Quota.objects.get(project=project)
    assert (quota.weight, quota.cap_gpu_hours, quota.cap_days) == (3, 500, 7)
    assert quota.guaranteed_units == 2 * UNITS_PER_GPU
    assert (quota.limit_units, quota.lend_limit_units) == (4 * UNITS_PER_GPU, UNITS_PER_GPU)
    admin.post("/t/own/quotas", _share(guaranteed="1"))
    with tenant_tx(tenant.id):
        assert Quota.objects.get(project=project).cap_gpu_hours == 500, "each form has its own part"


@pytest.mark.turn
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("weight", ""),
        ("weight", "1001"),
        ("weight", "-1"),
        ("cap_gpu_hours", "1.5"),
        ("cap_gpu_hours", ""),
        ("cap_days", "32"),
        ("cap_days", "٣"),
        ("cap_carries", "1"),
    ],
)
def test_a_weight_or_cap_that_makes_no_sense_changes_nothing(
    admin: Client, tenant: Tenant, field: str, text: str
) -> None:
    project = _vision(tenant)
    answer = admin.post("/t/own/quotas", _more(**{field: text}))
    assert answer.status_code == 422
    with tenant_tx(tenant.id):
        quota = Quota.objects.get(project=project)
    assert (quota.weight, quota.cap_gpu_hours) == (1, None)
    if field != "cap_carries":
        assert f'value="{text}"' in answer.content.decode(), "it comes back as typed"


def test_a_project_without_a_share_gets_no_cap(admin: Client, tenant: Tenant) -> None:
    a_project(tenant, "vision")
    a_quota(tenant, guaranteed=8)
    assert 'name="weight' not in admin.get("/t/own/quotas").content.decode()
    assert admin.post("/t/own/quotas", _more()).status_code == 404


def test_members_read_a_cap_and_may_not_change_it(client: Client, tenant: Tenant) -> None:
    project = _vision(tenant)
    with tenant_tx(tenant.id):
        Quota.objects.filter(project=project).update(cap_gpu_hours=750)
    client.force_login(a_member(project, "lead").user)
    page = client.get("/t/own/quotas").content.decode()
    assert "750" in page
    assert 'name="weight' not in page
    assert client.post("/t/own/quotas", _more()).status_code == 403


def test_an_operator_caps_a_tenant_and_the_tenant_reads_it(operator: Client, tenant: Tenant) -> None:
    project = _vision(tenant)
    form = _more(str(tenant.id), cap_days="", cap_carries="1")
    assert operator.post("/ops/quotas", form).status_code == 302
    with tenant_tx(tenant.id):
        quota = Quota.objects.get(project=None)
    assert (quota.weight, quota.cap_gpu_hours, quota.cap_carries) == (3, 500, True)
    reader = Client()
    reader.force_login(a_member(project).user)
    text = _text(reader.get("/t/own/quotas").content)
    assert "at most 500 GPU-hours in a calendar month (UTC)" in text


def _fields(page: str) -> dict[str, str]:
    """What a browser sends of the page's form when nothing was edited."""
    found = {"act": "save"}
    for tag in re.findall(r'<input[^>]*form="quotas"[^>]*>', page):
        name = re.search(r'name="([^"]*)"', tag)
        value = re.search(r'value="([^"]*)"', tag)
        assert name is not None
        if "checkbox" not in tag or " checked" in tag:
            found[unescape(name[1])] = unescape(value[1]) if value else ""
    return found


def _guarantees(tenant: Tenant) -> dict[str, int]:
    with tenant_tx(tenant.id):
        rows = Quota.objects.exclude(project=None).values_list("project__slug", "guaranteed_units")
        return {slug: units // UNITS_PER_GPU for slug, units in rows}


def _two(tenant: Tenant) -> None:
    a_quota(tenant, guaranteed=8)
    for slug, guaranteed in (("language", 6), ("vision", 2)):
        a_quota(tenant, project=a_project(tenant, slug), guaranteed=guaranteed)


@pytest.mark.turn
def test_one_save_moves_gpus_from_one_project_to_another(admin: Client, tenant: Tenant) -> None:
    _two(tenant)
    form = _fields(admin.get("/t/own/quotas").content.decode())
    for shares in ({"vision": 5, "language": 3}, {"vision": 1, "language": 7}):
        form |= {f"guaranteed:h100:{slug}": str(count) for slug, count in shares.items()}
        answer = admin.post("/t/own/quotas", form | {"sure": "1"}, follow=True)
        assert all(f"{count} guaranteed" in _text(answer.content) for count in shares.values())
        assert _guarantees(tenant) == shares


@pytest.mark.turn
def test_a_save_is_whole_or_nothing_and_keeps_what_was_typed(admin: Client, tenant: Tenant) -> None:
    _two(tenant)
    form = _fields(admin.get("/t/own/quotas").content.decode())
    form |= {"guaranteed:h100:language": "5", "guaranteed:h100:vision": "4", "weight:h100:language": "x"}
    answer = admin.post("/t/own/quotas", form | {"sure": "1"})
    assert answer.status_code == 422
    assert _guarantees(tenant) == {"language": 6, "vision": 2}
    again = _fields(answer.content.decode())
    assert again == form


@pytest.mark.turn
def test_what_nobody_edited_is_not_written_over_a_later_change(admin: Client, tenant: Tenant) -> None:
    _two(tenant)
    form = _fields(admin.get("/t/own/quotas").content.decode())
    answer = admin.post("/t/own/quotas", form, follow=True)
    assert "Nothing was changed." in _text(answer.content)
    with tenant_tx(tenant.id):
        Quota.objects.filter(project__slug="language").update(guaranteed_units=UNITS_PER_GPU, weight=4)
    admin.post("/t/own/quotas", form | {"guaranteed:h100:vision": "3"})
    assert _guarantees(tenant) == {"language": 1, "vision": 3}


@pytest.mark.turn
def test_many_changes_are_counted(admin: Client, tenant: Tenant) -> None:
    a_quota(tenant, guaranteed=8)
    form = {"act": "save"}
    for number in range(4):
        a_project(tenant, f"p{number}")
        form |= _share(f"p{number}", guaranteed="1")
    assert "4 quotas were saved." in _text(admin.post("/t/own/quotas", form, follow=True).content)
