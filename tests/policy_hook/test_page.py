"""The hook's page, and what people see of it on theirs."""

import re
from typing import TYPE_CHECKING

from django.test import Client

from tests.api.builders import said
from tests.policy_hook.conftest import Hooked
from tests.roles import as_system

if TYPE_CHECKING:
    from tenants.models import PolicyHook

BASE = "/t/helix/settings/policy-hook"


def signed_in(hooked: Hooked, who: str) -> Client:
    client = Client()
    client.force_login(hooked.site.people[who])
    return client


def the_hook() -> "PolicyHook":
    from tenants.models import PolicyHook  # noqa: PLC0415 (settings are not there on import)

    with as_system():
        return PolicyHook.objects.get()


def test_an_admin_makes_tries_and_deletes_one(hooked: Hooked) -> None:
    admin = signed_in(hooked, "admin")
    assert BASE in admin.get("/t/helix/organisation").content.decode()
    assert "can&#x27;t be undone" in admin.post(BASE, {"act": "delete"}).content.decode()
    gone = admin.post(BASE, {"act": "delete", "sure": "1"}, follow=True).content.decode()
    assert "Send test" not in gone
    form = {"act": "set", "url": hooked.hook.url, "timeout_ms": "500", "mode": "dry", "failure": "open"}
    assert re.search(r"whsec_[A-Za-z0-9+/=]{44}", admin.post(BASE, form).content.decode())
    hook = the_hook()
    assert (hook.is_on, hook.is_dry_run, hook.is_fail_open, hook.timeout_ms) == (
        True,
        True,
        True,
        500,
    )
    hooked.hook.answer = {"decision": "deny", "message": "<b>No</b>"}
    tested = admin.post(BASE, {"act": "test"}, follow=True).content.decode()
    assert "The hook answered." in tested
    assert "&lt;b&gt;No" in tested
    made = said(hooked.book())
    assert "Would have been denied" in admin.get(BASE).content.decode()
    assert "No calls" in admin.get(BASE, {"outcome": "skipped"}).content.decode()
    assert made["state"] == "requested"
    assert "whsec_" in admin.post(BASE, {"act": "rotate"}).content.decode()
    for more, sentence in (
        ({"url": "http://10.0.0.1/"}, "private or reserved"),
        ({"timeout_ms": "²"}, "Enter a whole number"),
        ({"timeout_ms": "3000"}, "100 to 2000"),
    ):
        bad = admin.post(BASE, {**form, **more})
        assert bad.status_code == 422
        assert sentence in bad.content.decode()
    assert signed_in(hooked, "lead").get(BASE).status_code == 403
    assert signed_in(hooked, "outsider").get(BASE).status_code == 404


def test_a_booking_by_a_page_asks_the_hook_and_shows_its_words_escaped(hooked: Hooked) -> None:
    person = signed_in(hooked, "researcher")
    form = {"project": "folding", "option": "standard 1 h100 10m", "key": "0" * 32}
    hooked.hook.answer = {"decision": "deny", "message": "<script>No"}
    denied = person.post("/t/helix/book", form)
    assert denied.status_code == 409
    assert "&lt;script&gt;No" in denied.content.decode()
    hooked.hook.answer = {"decision": "admit", "tier": "spot", "message": "<script>Yes"}
    page = person.post("/t/helix/book", form, follow=True).content.decode()
    assert "moved the tier from Standard to Spot: “&lt;script&gt;Yes”" in page
    assert [each["act"] for each in hooked.hook.questions] == ["booking", "booking"]
    # The same form again finds the booking and asks nobody.
    person.post("/t/helix/book", form)
    assert len(hooked.hook.got) == 2
