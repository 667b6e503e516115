"""Every page and REST count the same people, and no service account as one."""

import re

import pytest
from django.test import Client

from tenants.models import Membership, Project, Role
from tests.api.builders import Site, a_site, said
from tests.builders import a_member
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
NEW = {"act": "create", "project": "folding", "role": "researcher"}


@pytest.fixture
def site(db: None) -> Site:
    """A project with two service accounts and somebody who leads it and is admin, too."""
    site = a_site()
    with as_system():
        folding = Project.objects.get(slug="folding", tenant=site.tenant)
        a_member(folding, role=Role.LEAD, user=site.people["admin"])
        closed = a_member(folding, role=Role.VIEWER).user
        with as_owner():
            type(closed).objects.filter(pk=closed.pk).update(is_active=False)
    for name in ("Nightly", "Deploys"):
        answer = browser_of(site, "lead").post("/t/helix/settings/service-accounts", NEW | {"name": name})
        assert answer.status_code == 302
    return site


def browser_of(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def people_of(site: Site, *, project: str = "", has_admins: bool = True) -> int:
    """The people with an open account, read without the portal's code."""
    with as_system():
        rows = Membership.objects.filter(tenant=site.tenant, user__is_active=True)
        seen = {
            row.user.username
            for row in rows.select_related("user", "project")
            if not project or (has_admins if row.project is None else row.project.slug == project)
        }
    return len({name for name in seen if "@" not in name})


def number(text: str, page: str) -> int:
    found = re.search(text, page)
    assert found is not None, page
    return int(found[1])


def test_pages_of_an_organisation_count_its_people(site: Site) -> None:
    most = people_of(site)
    operator = browser_of(site, "operator")
    rows = said(site.operator.get("fleet/tenants"))["items"]
    (row,) = [each for each in rows if each["slug"] == "helix"]
    page = flat(operator.get("/ops/tenants").content.decode())
    asks = flat(operator.post("/ops/tenants", {"act": "close", "tenant": site.tenant.id}).content.decode())
    assert row["people"] == most
    assert number(r"Close Helix for (\d+) ", asks) == most
    assert f'data-label="People">{most}<' in page


def test_pages_of_a_project_count_its_people(site: Site) -> None:
    most = people_of(site, project="folding")
    admin = browser_of(site, "admin")
    page = flat(admin.get("/t/helix/p/folding").content.decode())
    asks = flat(admin.post("/t/helix/people", {"act": "close", "project": "folding"}).content.decode())
    assert number(r"(\d+) people and 2 service accounts with access", page) == most
    assert number(r"<h2>People</h2><span class=.sub.>(\d+)</span>", page) == most
    own = people_of(site, project="folding", has_admins=False)
    assert number(r"Close Folding for (\d+) ", asks) == own
    assert page.count("Service account, researcher") == 2
