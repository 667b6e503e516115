"""When a mail is due: at once, after quiet hours, or with the daily mail."""

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from tenants.rules.notifications import MailChoice, MailTimes, choice_of, mail_due

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = MailTimes(time(22), time(7), time(8))
NOON = MailTimes(time(12), time(13), time(12, 30))


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00").astimezone(UTC)


@pytest.mark.parametrize(
    ("now", "choice", "times", "can_wait", "due"),
    [
        # 21 November is in winter time: 20:59 UTC is 21:59 in Berlin, and two minutes later 22:01.
        ("2026-11-21T20:50", "now", NIGHT, True, "2026-11-21T20:52"),
        ("2026-11-21T20:59", "now", NIGHT, True, "2026-11-22T06:00"),
        ("2026-11-22T05:59", "now", NIGHT, True, "2026-11-22T06:01"),
        ("2026-11-22T02:00", "now", NIGHT, True, "2026-11-22T06:00"),
        ("2026-11-22T02:00", "now", NIGHT, False, "2026-11-22T02:00"),
        ("2026-11-22T02:00", "daily", NIGHT, False, "2026-11-22T02:00"),
        ("2026-11-22T02:00", "never", NIGHT, False, None),
        ("2026-11-22T02:00", "daily", NIGHT, True, "2026-11-22T07:00"),
        ("2026-11-22T07:00", "daily", NIGHT, True, "2026-11-23T07:00"),
        # A daily mail inside quiet hours waits for their end.
        ("2026-11-22T08:00", "daily", NOON, True, "2026-11-22T12:00"),
        ("2026-11-22T12:00", "now", MailTimes(), True, "2026-11-22T12:02"),
        # The night of 25 October has two hours from 2 to 3, that of 28 March none.
        ("2026-10-24T22:30", "daily", MailTimes(daily_at=time(2, 30)), True, "2026-10-25T00:30"),
        ("2027-03-27T23:30", "daily", MailTimes(daily_at=time(2, 30)), True, "2027-03-28T01:30"),
    ],
)
def test_a_mail_is_due_when_its_reader_wants_it(
    now: str,
    choice: MailChoice,
    times: MailTimes,
    can_wait: bool,  # noqa: FBT001 (a column of the table)
    due: str | None,
) -> None:
    found = mail_due(at(now), BERLIN, choice, times, can_wait=can_wait)
    assert found == (None if due is None else at(due))


def test_stored_choices_cannot_hide_a_countdown() -> None:
    stored = {"pause": {"in_app": False, "mail": "never"}, "start": {"mail": "often"}}
    assert choice_of(stored, "pause").in_app
    assert choice_of(stored, "pause").mail == "never"
    assert choice_of(stored, "start").mail == "never", "the default of its type"
