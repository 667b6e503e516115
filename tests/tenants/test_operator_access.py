"""Access of operators: what they see, that nothing changes, who is notified, and when it ends."""

from datetime import timedelta

import pytest
from django.db import InternalError
from django.test import Client
from django.utils import timezone

from portal.integrations.relay import outbox_relay
from tenants.models import AuditEntry, Notification, OperatorAccess, Project
from tenants.platform.wall import tenant_read_tx, tenant_tx
from tenants.services.members.operator_access import access_sweep
from tests.api.builders import Site, a_site, said
from tests.builders import a_tenant_admin
from tests.roles import as_owner, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
BODY = {"tenant": "northlab", "person": "stefan", "reason": "Ticket 7 <b>", "length": "PT1H"}


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


@pytest.fixture
def operator(site: Site) -> Client:
    client = Client()
    client.force_login(site.people["operator"])
    return client


def text(client: Client, path: str) -> str:
    return client.get(path).content.decode()


def entries() -> list[tuple[str, str]]:
    """Action and operator of each entry in the tenant's log, the oldest first."""
    with as_system():
        rows = AuditEntry.objects.filter(tenant__slug="northlab", object_kind="operator_access")
        return list(rows.order_by("id").values_list("action", "actor__username"))


def test_an_operator_reads_as_a_person_and_changes_nothing(site: Site, operator: Client) -> None:
    with as_system():
        boss = a_tenant_admin(site.other_project.tenant).user
    assert operator.get("/t/northlab/bookings").status_code == 404
    made = said(site.operator.post("operator-access", BODY))
    page = text(operator, "/t/northlab/p/climate")
    assert "You read North Lab as stefan. Nothing can be changed." in " ".join(page.split())
    assert "Ticket 7 &lt;b&gt;" in page
    # The person is no admin, so neither is the operator.
    assert "Your acts" in text(operator, "/t/northlab/log")
    refused = operator.post("/t/northlab/book", {"act": "book", "q": "1 h100 1h"})
    assert refused.status_code == 403
    assert "can change nothing there" in " ".join(refused.content.decode().split())
    # Neither by a token, nor in another tenant, nor for another operator.
    assert said(site.operator.get("me"))["tenant"] != "northlab"
    assert operator.get("/t/nowhere/bookings").status_code == 404
    assert Client().get("/t/northlab/bookings").status_code == 302

    assert entries() == [
        ("access.opened", "otto"),
        ("access.page_read", "otto"),
        ("access.page_read", "otto"),
    ]
    with as_system():
        outbox_relay(timezone.now())
        notified = Notification.objects.filter(kind="access.opened")
        assert list(notified.values_list("user", flat=True)) == [boss.pk]
        assert "Ticket 7 <b>" in notified.get().text

    site.operator.post(f"operator-access/{made['id']}/end")
    assert operator.get("/t/northlab/bookings").status_code == 404
    assert entries()[-1] == ("access.ended", "otto")
    again = site.operator.post(f"operator-access/{made['id']}/end")
    assert said(again)["code"] == "access_over"


def test_it_ends_by_itself_and_the_log_says_so(site: Site, operator: Client) -> None:
    site.operator.post("operator-access", {**BODY, "person": ""})
    # As an admin, the whole log.
    assert "Your acts" not in text(operator, "/t/northlab/log")
    with as_owner():
        past = timezone.now() - timedelta(hours=2)
        OperatorAccess.objects.update(opened=past, until=past + timedelta(hours=1))
    assert operator.get("/t/northlab/bookings").status_code == 404
    with as_system():
        assert access_sweep(timezone.now()) == 1
        assert access_sweep(timezone.now()) == 0
    assert entries()[-1][0] == "access.ended"


def test_the_database_refuses_to_write_meanwhile(site: Site) -> None:
    tenant = site.tenant.id
    with pytest.raises(InternalError, match="read-only"), tenant_read_tx(tenant):
        Project.objects.update(name="x")
    # Only until the end of the page.
    with tenant_tx(tenant):
        assert Project.objects.filter(slug="folding").update(name="Folding") == 1


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"reason": " "}, "invalid"),
        ({"length": "PT5H"}, "access_length"),
        ({"tenant": "nobody"}, "not_found"),
        ({"person": "mara"}, "not_a_member"),
    ],
)
def test_a_wrong_one_is_refused(site: Site, more: dict[str, str], code: str) -> None:
    answer = site.operator.post("operator-access", BODY | more)
    assert answer.status_code // 100 == 4
    assert code in (said(answer)["code"], "invalid")
    assert site.admin.post("operator-access", BODY).status_code == 403
    with as_system():
        assert not OperatorAccess.objects.exists()
