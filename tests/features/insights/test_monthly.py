"""The figures of a month, mailed once to leads and admins when it is over."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.mail import EmailMultiAlternatives
from django.test import Client
from pytest_django import Settings

from allocation.features.insights.models import MailedMonth
from allocation.features.insights.monthly import months_mail
from portal.integrations.mail.message import email_of, section_of
from portal.integrations.notifications.delivery import people_notify
from tenants.models import (
    AuditEntry,
    FailedMessage,
    LabLead,
    Mail,
    Membership,
    Notification,
    NotificationSettings,
    OutboxMessage,
    User,
)
from tests.api.builders import Site
from tests.features.insights.test_summary import ran
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
OVER = datetime(2026, 11, 1, 1, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
# An operator is an admin of the organisation, too.
ADMINS = ["ada", "otto"]


def mailed(now: datetime) -> list[tuple[str, list[str], dict[str, Any]]]:
    """The messages of a turn: title, sign-in names and payload."""
    with as_system():
        before = set(OutboxMessage.objects.values_list("id", flat=True))
        months_mail(now)
        found = OutboxMessage.objects.filter(kind="figures.month").exclude(id__in=before).order_by("id")
        names = dict(User.objects.values_list("id", "username"))
        return [
            (each.payload["title"], [names[person] for person in each.payload["people"]], each.payload)
            for each in found
        ]


def test_each_reader_gets_the_widest_figures_once(site: Site) -> None:
    ran(site, datetime(2026, 10, 2, tzinfo=UTC), 100)
    assert mailed(OVER - MINUTE) == [], "readings of the last hour are still to come"
    found = mailed(OVER)
    assert [each[:2] for each in found] == [
        (f"{site.tenant.name} in October 2026", ADMINS),
        (f"{site.project.name} in October 2026", [site.people["lead"].username]),
    ]
    for _, _, said in found:
        assert said["text"].startswith("GPUs were booked for 100.0 hours. Too little of their use")
        assert said["text"].endswith("Charged for runs that ended: €0.00.")
    assert found[1][2]["path"] == (
        f"insights/compare?project={site.project.slug}&from=2026-10-01&to=2026-11-01"
        "&against_from=2026-09-01&against_to=2026-10-01"
    )
    assert mailed(OVER + MINUTE) == []
    with as_system():
        assert set(MailedMonth.objects.values_list("month", flat=True)) == {date(2026, 10, 1)}


def test_who_leads_a_lab_gets_the_labs_figures_and_not_those_of_its_projects(site: Site) -> None:
    ran(site, datetime(2026, 10, 2, tzinfo=UTC), 1)
    with as_owner():
        lab = site.tenant.lab_set.create(slug="physics", name="Physics")
        type(site.project).objects.filter(id=site.project.id).update(lab=lab)
        LabLead.objects.create(tenant=site.tenant, lab=lab, user=site.people["lead"])
    assert [each[:2] for each in mailed(OVER)][1:] == [
        ("Physics in October 2026", [site.people["lead"].username])
    ]


def test_an_organisation_without_bookings_gets_nothing_and_an_outage_of_a_week_sends_none(site: Site) -> None:
    assert mailed(OVER) == []
    ran(site, datetime(2026, 11, 2, tzinfo=UTC), 1)
    assert mailed(datetime(2026, 12, 8, tzinfo=UTC)) == []
    assert len(mailed(datetime(2026, 12, 7, 23, 59, tzinfo=UTC))) == 2


def test_one_that_fails_stops_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(site, datetime(2026, 10, 2, tzinfo=UTC), 1)

    def fails(*_: object) -> None:
        raise ValueError("no figures")

    with monkeypatch.context() as patched:
        patched.setattr("allocation.features.insights.monthly._readers", fails)
        assert mailed(OVER) == []
    with as_system():
        assert FailedMessage.objects.filter(queue="monthly figures").exists()
        assert not MailedMonth.objects.exists()
    assert len(mailed(OVER + 2 * MINUTE)) == 2


def test_the_mail_comes_in_the_morning_of_the_reader_unless_they_left(site: Site, settings: Settings) -> None:
    settings.MAIL_ON = True
    ran(site, datetime(2026, 10, 2, tzinfo=UTC), 1)
    with as_owner():
        User.objects.update(email="somebody@example.org", time_zone="Europe/Berlin")
    mailed(OVER)
    with as_owner():
        Membership.objects.filter(user=site.people["lead"]).delete()
    with as_system():
        people_notify(list(OutboxMessage.objects.filter(kind="figures.month").order_by("id")), OVER)
        assert sorted(each.user.username for each in Notification.objects.all()) == ADMINS
        mails = list(Mail.objects.order_by("user__username"))
        assert {each.due for each in mails} == {datetime(2026, 11, 1, 7, tzinfo=UTC)}
        assert [each.user.username for each in mails if each.user] == ADMINS
        mail = mails[0]
        section = section_of(mail, mail.due)
    assert section is not None
    assert section.headline == f"{site.tenant.name} in October 2026"
    assert "GPUs were booked for 1.0 hours" in section.sentences[0]


@pytest.fixture
def letter(site: Site, settings: Settings) -> EmailMultiAlternatives:
    """The mail of a month to a lead."""
    settings.MAIL_ON = True
    ran(site, datetime(2026, 10, 2, tzinfo=UTC), 1)
    with as_owner():
        User.objects.update(email="somebody@example.org")
    mailed(OVER)
    with as_system():
        people_notify(list(OutboxMessage.objects.filter(kind="figures.month").order_by("id")), OVER)
        mail = Mail.objects.get(user=site.people["lead"])
        section = section_of(mail, mail.due)
        assert section is not None
        return email_of([mail], [section])


def test_one_click_in_the_mail_ends_it(site: Site, letter: EmailMultiAlternatives) -> None:
    address = letter.extra_headers["List-Unsubscribe"].strip("<>")
    assert letter.extra_headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert address in str(letter.body)
    path, client = "/notifications/end/" + address.rpartition("/")[2], Client()
    assert "End these mails?" in client.get(path).content.decode()
    with as_system():
        assert not NotificationSettings.objects.exists(), "a look ends nothing"
    for _ in range(2):
        assert client.post(path, {"List-Unsubscribe": "One-Click"}).status_code == 200
    assert client.post(f"{path[:-3]}abc").status_code == 404
    with as_system():
        row = NotificationSettings.objects.get()
        assert (row.user_id, row.tenant_id) == (site.people["lead"].pk, site.tenant.id)
        assert AuditEntry.objects.filter(action="user.notifications_set").count() == 1
        Mail.objects.all().delete()
        Notification.objects.all().delete()
        people_notify(list(OutboxMessage.objects.filter(kind="figures.month").order_by("id")), OVER)
        assert sorted(each.user.username for each in Mail.objects.all() if each.user) == ADMINS
        assert Notification.objects.filter(user=site.people["lead"]).exists(), "the inbox still gets it"
