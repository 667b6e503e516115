"""Announcements: who sees one on pages, over REST and in the inbox, and how a banner is closed."""

from datetime import timedelta

import pytest
from django.db import ProgrammingError, transaction
from django.test import Client
from django.utils import timezone

from portal.integrations.relay import outbox_relay
from tenants.models import Announcement, Mail, Notification
from tests.api.builders import Site, a_site, said
from tests.roles import as_role, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
TEXT = "Racks are moved <b>"
SHOWN = "Racks are moved &lt;b&gt;"
HOUR = timedelta(hours=1)


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def body(**more: object) -> dict[str, object]:
    until = timezone.now() + HOUR
    return {"text": TEXT, "level": "wait", "until": until.isoformat(), "tenants": ["helix"], **more}


def page(client: Client, path: str) -> str:
    return client.get(path).content.decode()


def test_those_it_is_for_see_it_until_they_close_it(site: Site) -> None:
    made = said(site.operator.post("announcements", body()))
    member, outsider = Client(), Client()
    member.force_login(site.people["researcher"])
    outsider.force_login(site.people["outsider"])
    assert SHOWN in page(member, "/t/helix/bookings")
    assert SHOWN not in page(outsider, "/t/northlab/bookings")
    assert SHOWN not in page(Client(), "/sign-in")
    assert said(site.outsider.get("announcements"))["items"] == []
    (item,) = said(site.researcher.get("announcements"))["items"]
    assert (item["is_shown"], item["is_dismissed"], item["tenants"]) == (True, False, [])

    close = f"/announcements/{made['id']}/dismiss"
    assert outsider.post(f"/t/northlab{close}").status_code == 404
    elsewhere = member.post(f"/t/helix{close}", {"next": "//evil.example/"})
    assert elsewhere["Location"] == "/"
    assert SHOWN not in page(member, "/t/helix/bookings")
    assert said(site.researcher.get("announcements"))["items"][0]["is_dismissed"] is True
    # Another reader still sees it, until the operator withdraws it.
    other = Client()
    other.force_login(site.people["lead"])
    assert SHOWN in page(other, "/t/helix/bookings")
    site.operator.post(f"announcements/{made['id']}/withdraw")
    assert SHOWN not in page(other, "/t/helix/bookings")
    again = site.operator.post(f"announcements/{made['id']}/withdraw")
    assert said(again)["code"] == "announcement_over"

    with as_system():
        outbox_relay(timezone.now())
        people = Notification.objects.filter(kind="announcement.published")
        notified = set(people.values_list("user__username", flat=True))
        assert notified == {"mara", "jonas", "vera", "ada", "otto"}
        assert not Mail.objects.exists()


def test_one_for_everybody_is_on_the_page_of_signing_in(site: Site) -> None:
    later = (timezone.now() + HOUR / 2).isoformat()
    site.operator.post("announcements", body(text="Not yet", tenants=[], starts=later))
    site.operator.post("announcements", body(text="All of you", tenants=[]))
    text = page(Client(), "/sign-in")
    assert "All of you" in text
    assert "Not yet" not in text


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"text": " "}, "invalid"),
        ({"until": "2020-01-01T00:00:00Z"}, "bad_window"),
        ({"until": (timezone.now() + 2400 * HOUR).isoformat()}, "bad_window"),
        ({"tenants": ["nobody"]}, "not_found"),
        ({"level": "panic"}, "invalid"),
    ],
)
def test_a_wrong_one_is_refused(site: Site, more: dict[str, object], code: str) -> None:
    answer = site.operator.post("announcements", body(**more))
    assert answer.status_code in (400, 422)
    assert code in (said(answer)["code"], "invalid")
    assert site.admin.post("announcements", body()).status_code == 403
    with as_system():
        assert not Announcement.objects.exists()


def test_a_web_process_writes_none(site: Site) -> None:
    made = said(site.operator.post("announcements", body()))
    with as_role("portal_web"), pytest.raises(ProgrammingError), transaction.atomic():
        Announcement.objects.filter(id=made["id"]).update(text="x")
