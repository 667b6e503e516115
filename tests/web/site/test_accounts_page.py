"""The operators' page of accounts: closed at once, erased for good."""

import pytest
from django.test import Client

from tenants.models import Membership, User
from tests.builders import a_member, a_project, a_tenant, a_user, an_operator
from tests.roles import as_system

pytestmark = pytest.mark.django_db


@pytest.mark.turn
def test_an_operator_closes_and_erases_an_account() -> None:
    tenant, operator = a_tenant("own"), Client()
    operator.force_login(an_operator())
    member = a_member(a_project(tenant, "vision"), user=a_user("mara", first_name="Mara Lind"))
    theirs = Client()
    theirs.force_login(member.user)
    form = {"user": str(member.user_id), "sure": "1"}
    assert operator.post("/ops/accounts", form | {"act": "erase"}).status_code == 422
    assert "Mara Lind" in operator.get("/ops/accounts?q=lind").content.decode()
    assert operator.post("/ops/accounts", form | {"act": "close"}).status_code == 302
    assert theirs.get("/t/own/people")["Location"].startswith("/sign-in")
    assert operator.post("/ops/accounts", form | {"act": "erase"}).status_code == 302
    assert operator.post("/ops/accounts", form | {"act": "open"}).status_code == 422
    with as_system():
        erased = User.objects.get(id=member.user_id)
        assert (erased.username, erased.get_full_name()) == (f"erased-{erased.pk}", "")
        assert not Membership.objects.filter(user=erased).exists()
        me = User.objects.get(is_staff=True)
    own = {"act": "close", "user": str(me.pk), "sure": "1"}
    assert operator.post("/ops/accounts", own).status_code == 422
