"""Files of large statements: how far they are, over REST and on pages, and a worker's death."""

from collections.abc import Callable
from datetime import datetime, timedelta
from io import BytesIO

import pytest
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone

from allocation.features.exports import points
from allocation.features.exports import services as exports
from allocation.features.exports.models import StatementExport
from allocation.queries.bookings.money import statement_files
from tenants.models import Membership
from tenants.platform.wall import tenant_tx
from tests.api.bookings.test_spend import charged
from tests.api.builders import Site, said
from tests.roles import as_system

MONTH = f"{timezone.now():%Y-%m}"
ASKED = {"project": "folding", "month": MONTH, "file": "csv"}


class _Killed(BaseException):
    """The worker's process ends."""


def dying(after: int) -> Callable[[], datetime]:
    """A clock of a worker that is killed when it has read it so many times."""
    left = iter(range(after))

    def clock() -> datetime:
        if next(left, None) is None:
            raise _Killed
        return timezone.now()

    return clock


def test_a_file_survives_its_worker_and_says_how_far_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_files, "PROGRESS_LINES", 1)
    for _ in range(3):
        charged(site, 5, 0)
    answer = site.lead.post("exports", ASKED)
    made = said(answer)
    assert (answer.status_code, answer["Retry-After"]) == (202, "2")
    assert (made["state"], made["lines"], made["lines_done"]) == ("waiting", 3, 0)
    assert said(site.lead.post("exports", ASKED))["id"] == made["id"]
    path = answer["Location"].removeprefix("/api/v1/")
    assert said(site.lead.get(f"{path}/file"))["code"] == "not_ready"
    for who in (site.researcher, site.admin, site.outsider):
        assert who.get(path).status_code == 404

    # Two lines are said to be written when the worker is killed.
    with as_system(), pytest.raises(_Killed):
        exports.exports_make(dying(after=4))
    now = said(site.lead.get(path))
    assert (now["state"], now["lines_done"], now["percent"]) == ("making", 2, 66)
    with as_system():
        assert exports.exports_make(timezone.now) == 0
        later = timezone.now() + exports.CLAIM * 2
        assert exports.exports_make(lambda: later) == 1
    ready = said(site.lead.get(path))
    assert (ready["state"], ready["percent"], ready["url"]) == (
        "ready",
        100,
        f"/api/v1/{path}/file",
    )
    file = site.lead.get(f"{path}/file")
    direct = site.lead.get("statements.csv", project="folding", month=MONTH)
    assert file.getvalue() == direct.getvalue()
    assert file["Content-Length"] == direct["Content-Length"]

    # A person who left the project gets its files no more.
    with as_system():
        Membership.objects.filter(user=site.people["lead"]).delete()
    assert site.lead.get(f"{path}/file").status_code in (401, 403, 404)


def test_a_file_that_is_never_made_is_given_up_and_removed_after_a_day(site: Site) -> None:
    path = f"exports/{said(site.lead.post('exports', ASKED))['id']}"
    now = timezone.now()
    with as_system():
        for tries in range(exports.MOST_ATTEMPTS):
            StatementExport.objects.update(attempts=tries + 1, claimed_until=now)
        exports.exports_make(lambda: now + timedelta(seconds=1))
    assert said(site.lead.get(path))["state"] == "failed"
    again = said(site.lead.post("exports", ASKED))
    assert again["state"] == "waiting"
    with as_system():
        exports.exports_make(lambda: now + exports.KEPT * 2)
    assert site.lead.get(path).status_code == 404


def test_exports_are_refused_and_the_web_can_not_write_their_contents(site: Site) -> None:
    assert site.lead.post("exports", {"month": MONTH, "file": "csv"}).status_code == 403
    for who, more in (
        (site.lead, {"project": "hidden"}),
        (site.lead, {"month": "2026-13"}),
        (site.lead, {"file": "docx"}),
        (site.outsider, {}),
    ):
        assert who.post("exports", ASKED | more).status_code == 422, more
    for number in range(exports.MOST_OPEN):
        assert site.admin.post("exports", ASKED | {"month": f"2026-0{number + 1}"}).status_code == 202
    assert said(site.admin.post("exports", ASKED))["code"] == "too_many_exports"
    with pytest.raises(DatabaseError, match="permission"), tenant_tx(site.tenant.id):
        StatementExport.objects.update(content=b"x")


def test_the_page_of_a_large_statement_waits_without_scripts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    client.force_login(site.people["lead"])
    charged(site, 5, 0)
    page = f"/t/helix/statements?month={MONTH}&project=folding"
    assert f"/t/helix/statements/{MONTH}.pdf" in client.get(page).content.decode()
    monkeypatch.setattr(points, "DIRECT_LINES", 0)
    assert 'value="pdf"' in client.get(page).content.decode()
    form = {"month": MONTH, "project": "folding", "file": "pdf"}
    here = client.post("/t/helix/exports", form)["Location"]
    waiting = client.get(here)
    assert waiting["Refresh"] == "2; url=?waited=1"
    assert "Lines written: 0 of 1" in waiting.content.decode()
    assert client.get(f"{here}/file")["Location"] == here
    with as_system():
        assert exports.exports_make(timezone.now) == 1
    ready = client.get(f"{here}?waited=1")
    assert ready["Refresh"] == f"0; url={here}/file"
    assert "Download" in ready.content.decode()
    assert "Refresh" not in client.get(here)
    assert BytesIO(client.get(f"{here}/file").getvalue()).read(4) == b"%PDF"
    assert here in client.get(page).content.decode()
