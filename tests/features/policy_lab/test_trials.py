"""Trials: asked for by operators, played from the rows of the database, cancelled and taken over."""

import csv
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from allocation.features.policy_lab import trials
from allocation.features.policy_lab.history import history_read, is_drawn
from allocation.features.policy_lab.models import PolicyTrial, PolicyTrialPart
from allocation.features.policy_lab.plays.play import Play
from allocation.features.policy_lab.trials import (
    SILENT,
    TrialTerms,
    trial_ask,
    trial_cancel,
    trials_run,
    trials_served,
    trials_unserved,
    trials_waiting,
)
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from allocation.services.policy.policies import policy_draft
from tenants.models import AuditEntry, Project
from tenants.platform.errors import Refused
from tests.api.builders import Site, a_site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_role, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
HOUR = timedelta(hours=1)
NOW = timezone.now().replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def site(db: None) -> Site:
    site = a_site()
    lived(site)
    return site


def lived(site: Site) -> None:
    """Four days: each day some run on all GPUs, one is cancelled while it waits, and one runs now."""
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))
    for day in range(4):
        begin = NOW - timedelta(days=4 - day)
        for number, gpu in enumerate(gpus):
            project = site.project if number % 2 else site.other_project
            ran(site, project, gpu, begin, begin + HOUR * (2 + number % 3))
        waited = a_booking(
            site.project, site.people["researcher"].pk, state=State.CANCELLED, starts=begin, now=begin
        )
        with as_owner():
            Booking.objects.filter(id=waited.id).update(
                submitted=begin + HOUR, starts=None, not_before=begin + HOUR, ended_at=begin + 3 * HOUR
            )
    ran(site, site.project, gpus[0], NOW - HOUR, None)


def ran(site: Site, project: Project, gpu: Gpu, starts: datetime, ends: datetime | None) -> None:
    person = site.people["outsider" if project == site.other_project else "researcher"].pk
    state = State.ENDED if ends else State.ACTIVE
    booking = a_booking(project, person, state=state, starts=starts, now=starts)
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            submitted=starts - HOUR,
            starts=None,
            not_before=starts - HOUR,
            duration_seconds=5 * 3_600,
            planned_class=gpu.gpu_class_id,
            ended_at=ends,
        )
    an_allocation(booking, gpu, starts=starts, ends=ends or NOW + HOUR, state="ended" if ends else "active")


def asked(days: int = 7, seeds: int = 2, **document: object) -> PolicyTrial:
    with as_system():
        made = policy_draft(document=document, now=NOW)
    with as_role("portal_ops"):
        terms = TrialTerms(candidate=made.number, days=days, seeds=seeds)
        return trial_ask(terms=terms, operator_id=None, now=NOW)


def clock() -> datetime:
    return NOW + timedelta(minutes=1)


def fresh(trial: PolicyTrial) -> PolicyTrial:
    with as_system():
        return PolicyTrial.objects.get(id=trial.id)


def report_of(trial: PolicyTrial) -> dict[str, Any]:
    report: dict[str, Any] | None = fresh(trial).report
    assert report is not None
    return report


def test_the_past_is_read_from_the_rows(site: Site) -> None:
    with as_system():
        history, names = history_read(NOW - timedelta(days=7), NOW)
    with as_owner():
        rows = {str(row.id): row for row in Booking.objects.all()}
    assert {each.request.booking for each in history.past} == rows.keys()
    for each in history.past:
        row = rows[each.request.booking]
        assert names.bookings[each.request.booking] == row.label
        assert (each.cancelled is not None) == (row.state == State.CANCELLED)
        assert (each.really is not None) == (row.state == State.ENDED)
        if row.state == State.ENDED and row.ended_at:
            assert each.really == (row.ended_at - row.submitted).total_seconds() - 3_600
    assert is_drawn(history)


def test_a_candidate_equal_to_the_live_version_differs_nowhere(site: Site) -> None:
    trial = asked()
    with as_system():
        assert trials_run(clock) == 1
    done = fresh(trial)
    assert (done.state, done.permille, done.note) == ("done", 1_000, "")
    report = report_of(trial)
    assert report["totals"]["active"] == report["totals"]["candidate"]
    assert (report["longer"], report["shorter"]) == ([], [])
    assert report["totals"]["active"]["watt_hours"] is None, "nothing was measured"
    assert {row["name"] for row in report["tenants"]} == {"helix", "northlab"}
    assert all(row["change"] == 0 for key in ("tiers", "tenants", "projects") for row in report[key])
    with as_system():
        assert PolicyTrialPart.objects.filter(trial=trial).count() == 4


def test_the_same_input_has_the_same_bytes(site: Site) -> None:
    reports = []
    for _ in range(2):
        trial = asked(grid=3_600, horizon=86_400)
        with as_system():
            trials_run(clock)
        reports.append(json.dumps(fresh(trial).report, sort_keys=True))
    assert reports[0] == reports[1]


def test_a_cancelled_trial_ends_and_one_that_is_over_stays(site: Site) -> None:
    trial = asked()
    with as_role("portal_ops"):
        trial_cancel(trial_id=trial.id, operator_id=None, now=NOW)
    with as_system():
        assert trials_run(clock) == 0
        assert AuditEntry.objects.filter(action="policy.trial_cancelled").count() == 1
    assert (fresh(trial).state, fresh(trial).report) == ("cancelled", None)
    with as_system(), pytest.raises(Refused, match="trial_over"):
        trial_cancel(trial_id=trial.id, operator_id=None, now=NOW)


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Something happens at the third turn of the first play."""
    monkeypatch.setattr(trials, "BEAT_SECONDS", 0.0)
    really, seen = Play.turns, [0]

    def turns(play: Play) -> object:
        for now in really(play):
            seen[0] += 1
            if seen[0] == 3:
                act()
            yield now

    monkeypatch.setattr(Play, "turns", turns)


def test_a_trial_that_is_cancelled_while_it_is_played_stops(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = asked()

    def cancel() -> None:
        with as_role("portal_ops"):
            trial_cancel(trial_id=trial.id, operator_id=None, now=NOW)

    during(monkeypatch, cancel)
    with as_system():
        trials_run(clock)
        assert not PolicyTrialPart.objects.exists()
    assert fresh(trial).state == "cancelled"


def test_a_worker_that_stops_gives_its_trial_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    trial, stops = asked(), Event()
    during(monkeypatch, stops.set)
    with as_system():
        trials_run(clock, stops.is_set)
    assert fresh(trial).state == "waiting"
    with as_system():
        trials_run(clock)
    assert (fresh(trial).state, fresh(trial).attempts) == ("done", 2)


def test_a_trial_whose_process_died_is_taken_over_and_not_played_again(site: Site) -> None:
    trial = asked(seeds=1)
    with as_system():
        trials_run(clock)
        report = fresh(trial).report
        parts = PolicyTrialPart.objects.filter(trial=trial)
        made = list(parts.order_by("id").values_list("id", "made_at"))
    with as_owner():
        parts.filter(is_candidate=True).delete()
        PolicyTrial.objects.filter(id=trial.id).update(
            state="running", alive_at=NOW, finished_at=None, report=None
        )
    with as_system():
        assert not trials_waiting(NOW + SILENT).exists()
        assert trials_run(lambda: NOW + SILENT) == 0, "its process may live"
        assert trials_run(lambda: NOW + 2 * SILENT) == 1
        assert parts.order_by("id").values_list("id", "made_at")[0] == made[0]
    assert (fresh(trial).report, fresh(trial).attempts) == (report, 2)


def test_one_process_is_started_for_what_waits(site: Site) -> None:
    trial = asked(seeds=1)
    with as_system():
        assert trials_served(NOW)
        assert not trials_unserved(NOW + SILENT).exists()
        assert not trials_served(NOW + SILENT), "it has not begun yet"
        assert trials_served(NOW + 2 * SILENT), "it has died before it began"
        PolicyTrial.objects.filter(id=trial.id).update(state="running", alive_at=NOW)
        assert trials_served(NOW + 2 * SILENT), "it has died while it played"
        assert not trials_served(NOW + 2 * SILENT)
        trials_run(clock)
        assert not trials_served(NOW + 9 * SILENT)
    assert fresh(trial).state == "done"


def test_a_trial_that_never_ends_fails(site: Site) -> None:
    trial = asked()
    with as_system():
        PolicyTrial.objects.filter(id=trial.id).update(state="running", attempts=3, alive_at=NOW)
        assert trials_run(lambda: NOW + 2 * SILENT) == 0
    assert (fresh(trial).state, fresh(trial).note) == ("failed", "It was begun 3 times and never ended.")


def test_rest_asks_reports_and_refuses(site: Site) -> None:
    with as_system():
        number = policy_draft(document={"grid": 600}, now=NOW).number
    answer = site.operator.post("policy/trials", {"candidate": number, "days": 7, "seeds": 1})
    assert answer.status_code == 202
    made = said(answer)
    assert made["status_url"] == f"/api/v1/policy/trials/{made['id']}"
    assert (made["state"], made["candidate"], made["against"]) == ("waiting", number, 1)
    assert said(site.operator.get(f"policy/versions/{number}"))["state"] == "trial"
    with as_system():
        trials_run(clock)
    done = said(site.operator.get(f"policy/trials/{made['id']}"))
    assert (done["state"], done["progress"]) == ("done", 1_000)
    assert done["report"]["totals"]["active"]["started"] > 0
    assert [each["id"] for each in said(site.operator.get("policy/trials"))["items"]] == [made["id"]]
    for body, status in (
        ({}, 422),
        ({"candidate": 99}, 404),
        ({"candidate": number, "days": 0}, 422),
        ({"candidate": number, "days": 91}, 422),
        ({"candidate": number, "seeds": 11}, 422),
        ({"candidate": number, "seed": 1}, 400),
        ({"candidate": "7th"}, 422),
    ):
        found = site.operator.post("policy/trials", body).status_code
        assert found == status or (found in (400, 422) and status in (400, 422)), body
    assert said(site.operator.get(f"policy/trials/{uuid4()}"))["code"] == "not_found"


def test_people_of_tenants_see_no_trial(site: Site, client: Client) -> None:
    trial = asked()
    for who in (site.admin, site.lead, site.outsider):
        assert said(who.post("policy/trials", {"candidate": 1}))["code"] == "not_allowed"
        for address in ("policy/trials", f"policy/trials/{trial.id}"):
            assert said(who.get(address))["code"] == "not_allowed"
        assert said(who.post(f"policy/trials/{trial.id}/cancel"))["code"] == "not_allowed"
    client.force_login(site.people["admin"])
    for ending in ("", ".csv", ".json"):
        assert client.get(f"/ops/policy/trials/{trial.id}{ending}").status_code in (403, 404)


def test_pages_ask_show_and_give_files(site: Site, client: Client) -> None:
    with as_system():
        number = policy_draft(document={"victim_rules": []}, now=NOW).number
    client.force_login(site.people["operator"])
    address = f"/ops/policy/versions/{number}"
    assert client.post(address, {"act": "trial", "days": "0", "seeds": "1"}).status_code == 422
    client.post(address, {"act": "trial", "days": "7", "seeds": "1"})
    with as_system():
        trial = PolicyTrial.objects.get()
    page = f"/ops/policy/trials/{trial.id}"
    assert page in client.get(address).content.decode()
    assert "It begins within seconds" in client.get(page).content.decode()
    assert client.get(f"{page}.csv").status_code == 409
    with as_system():
        trials_run(clock)
    text = client.get(page).content.decode()
    for words in ("The whole site", "Guarantees missed", "not measured", "By organisation", "northlab"):
        assert words in text
    rows = list(csv.DictReader(StringIO(client.get(f"{page}.csv").content.decode())))
    assert {row["side"] for row in rows} == {"active", "candidate"}
    assert json.loads(client.get(f"{page}.json").content) == fresh(trial).report


def test_the_policy_page_says_what_the_last_trial_of_each_version_found(site: Site, client: Client) -> None:
    first, second = asked(seeds=1, victim_rules=[]), asked(seeds=1, grid=600)
    client.force_login(site.people["operator"])
    assert client.get("/ops/policy").content.decode().count("on trial") == 2
    with as_system():
        trials_run(clock)
        third = policy_draft(document={"grid": 900}, now=NOW).number
    with as_owner():
        report = report_of(second)
        report["differs"] = {"longer": 3, "shorter": 1}
        report["totals"]["candidate"]["pauses"] = 2
        PolicyTrial.objects.filter(id=second.id).update(report=report, demand={"load": 120})
        PolicyTrial.objects.filter(id=first.id).update(state="failed", report=None)
    rows = dict(re.findall(r'versions/(\d+)">.*?</th>.*?On the past">(.*?)</td>', page_of(client), re.S))
    past = f"Of {report['bookings']} bookings of 7 days with a changed demand"
    assert f"{past}, 1 wait less and 3 wait longer; 2 pauses instead of 0." in rows[str(second.candidate_id)]
    assert f"/ops/policy/trials/{second.id}" in rows[str(second.candidate_id)]
    assert "not tried" in rows[str(first.candidate_id)]
    assert "not tried" in rows[str(third)]
    assert "–" in rows["1"]


def page_of(client: Client) -> str:
    return client.get("/ops/policy").content.decode()


def test_the_command_plays_and_writes_files(site: Site, tmp_path: Path) -> None:
    with as_system():
        number = policy_draft(document={"grid": 600}, now=NOW).number
        text = StringIO()
        files = {"json": tmp_path / "trial.json", "csv": tmp_path / "trial.csv"}
        call_command("policy_trial", candidate=number, days=7, seeds=1, stdout=text, **files)
        with pytest.raises(CommandError, match="There is no such policy version"):
            call_command("policy_trial", candidate=99)
        trial = PolicyTrial.objects.get()
    assert "Guarantees missed" in text.getvalue()
    assert json.loads(files["json"].read_text()) == trial.report
    assert files["csv"].read_text().startswith("kind,name,side")
    assert isinstance(trial.id, UUID)
