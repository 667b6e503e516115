"""Records of another cluster: kept once, counted in forecasts and figures, compared, shown to their own."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from allocation.features.clusters.figures import use_of
from allocation.features.clusters.models import ObservedJob
from allocation.features.demand.models import DemandHour
from allocation.features.demand.services import demand_store
from allocation.models import Allocation, Gpu
from allocation.queries.fleet.metrics import metrics_of
from allocation.rules.states import State
from tenants.platform.wall import operator_tx, tenant_tx
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat
from tests.wire.test_sacct import HEAD, line
from wire.exposition import exposition

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def an_hour() -> datetime:
    """The full hour before now."""
    return timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def a_job(starts: datetime, hours: float = 2, **values: Any) -> dict[str, Any]:  # noqa: ANN401
    """A finished job of two GPUs that waited for an hour."""
    times = {"submitted": starts - HOUR, "eligible": starts - HOUR, "started": starts}
    usual = {"number": "4711", "gpu_type": "H100", "gpus": 2, "account": "physics", "state": "COMPLETED"}
    made = usual | times | {"ended": starts + hours * HOUR} | values
    return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in made.items()}


def sent(site: Site, *jobs: dict[str, Any], cluster: str = "main") -> dict[str, Any]:
    """Sends jobs as an operator."""
    answer = site.operator.post(f"clusters/{cluster}/jobs", {"jobs": list(jobs)})
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = said(answer)
    return found


def assigned(site: Site, project: str = "helix/folding") -> None:
    """Says that physics is a project's."""
    answer = site.operator.put("clusters/main/accounts", {"account": "physics", "project": project})
    assert said(answer) == {"account": "physics", "project": project}


def test_the_same_records_again_change_nothing_and_later_ones_replace_them(site: Site) -> None:
    """A job that ran has ended the next time; a type with the name of a class is that class."""
    starts = an_hour() - 5 * HOUR
    assert sent(site, a_job(starts, ended=None, state="RUNNING")) == {
        "jobs": 1,
        "types": [],
        "accounts": ["physics"],
    }
    assert said(site.operator.get("clusters"))["items"][0]["running_gpus"] == 2
    again = a_job(starts)
    sent(site, again, again)
    sent(site, again)
    row = ObservedJob.objects.using("default").all()
    with operator_tx():
        (kept,) = row
    assert (kept.state, kept.ended, kept.gpu_class_id) == ("COMPLETED", starts + 2 * HOUR, "h100")
    found = said(site.operator.get("clusters"))["items"][0]
    assert (found["running_gpus"], found["jobs"]) == (0, 1)


def test_what_kubernetes_no_longer_lists_runs_no_more(site: Site) -> None:
    """A pod that was deleted has no record of its end: it ran until it was read last."""
    starts = an_hour() - 5 * HOUR
    both = [a_job(starts, number=number, ended=None, state="Running") for number in ("uid-1", "uid-2")]
    answer = site.operator.post("clusters/k8s/jobs", {"jobs": both, "engine": "kubernetes"})
    assert answer.status_code == 200, answer.content
    with as_owner():
        past = timezone.now() - HOUR
        ObservedJob.objects.update(read_at=past)
    sent(site, both[0], cluster="k8s")
    (found,) = said(site.operator.get("clusters"))["items"]
    assert (found["engine"], found["running_gpus"], found["jobs"]) == ("kubernetes", 2, 2)
    client = Client()
    client.force_login(site.people["operator"])
    page = flat(client.get("/ops/clusters/k8s").content.decode())
    assert "Kubernetes; 2 jobs kept" in page
    with operator_tx():
        (use,) = use_of(starts, timezone.now(), "k8s")
    hours = 2 * (timezone.now() - starts) / HOUR + 2 * (past - starts) / HOUR
    assert float(use.gpu_hours) == pytest.approx(hours, abs=0.2)


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"ended": datetime(2020, 1, 1, tzinfo=UTC)}, "jobs.0.submitted"),
        ({"ended": datetime(2199, 1, 1, tzinfo=UTC)}, "jobs.0.ended"),
        ({"gpus": 0}, "jobs.0.gpus"),
        ({"colour": "red"}, "jobs.0.colour"),
    ],
)
def test_a_record_that_cannot_be_is_refused_and_nothing_is_kept(
    site: Site, values: dict[str, Any], param: str
) -> None:
    """It says which one of the list."""
    answer = site.operator.post("clusters/main/jobs", {"jobs": [a_job(an_hour() - 5 * HOUR, **values)]})
    assert answer.status_code in (400, 422), answer.content
    assert said(answer)["param"] == param
    assert said(site.operator.get("clusters"))["items"] == []


def test_a_cluster_without_types_and_accounts_is_kept_too(site: Site) -> None:
    """Empty names are names: a class and a project can be assigned to them."""
    found = sent(site, a_job(an_hour() - 5 * HOUR, gpu_type="", account="", user="", nodes=""))
    assert found == {"jobs": 1, "types": [""], "accounts": [""]}
    assert said(site.operator.put("clusters/main/types", {"type": "", "gpu_class": "h100"})) == {
        "type": "",
        "gpu_class": "h100",
    }
    assigned = said(site.operator.put("clusters/main/accounts", {"account": "", "project": "helix/folding"}))
    assert assigned == {"account": "", "project": "helix/folding"}
    taken_back = said(site.operator.put("clusters/main/accounts", {"account": "", "project": ""}))
    assert taken_back == {"account": "", "project": ""}


def test_jobs_count_in_the_hours_of_forecasts_when_their_type_is_a_class(site: Site) -> None:
    """Two GPUs from 0:30 to 2:30, of a type that gets its class later: hours are counted again then."""
    now = an_hour()
    starts = now - 80 * HOUR + 0.5 * HOUR
    assert sent(site, a_job(starts, gpu_type="hopper"))["types"] == ["hopper"]
    with as_system():
        demand_store(now - HOUR)
        assert not DemandHour.objects.exists()
    type_of = {"type": "hopper", "gpu_class": "h100"}
    assert said(site.operator.put("clusters/main/types", type_of))["gpu_class"] == "h100"
    with as_system():
        demand_store(now)
        rows = {(row.at - starts) / HOUR + 0.5: row for row in DemandHour.objects.filter(gpu_class="h100")}
    assert [rows[at].in_use for at in (0, 1, 2, 3)] == pytest.approx([1, 2, 1, 0])
    assert [rows[at].wanted for at in (-1, 0)] == pytest.approx([1, 2])
    assert [rows[at].requested for at in (-1, 0)] == [2, 0]


def test_an_organisation_sees_the_jobs_of_its_projects_only(site: Site, client: Client) -> None:
    """Before an account is assigned nobody does; after it the other organisation does not."""
    starts = an_hour() - 5 * HOUR
    sent(site, a_job(starts), a_job(starts, number="12", account="secret-lab"))
    with tenant_tx(site.tenant.id):
        assert use_of(starts - HOUR, timezone.now()) == []
    assigned(site)
    with tenant_tx(site.tenant.id):
        (row,) = use_of(starts - HOUR, timezone.now())
        assert ObservedJob.objects.count() == 1
    assert (row.account, row.gpu_class, row.gpu_hours, row.wait) == (
        "physics",
        "H100 80 GB",
        Decimal("4.000"),
        "1 h",
    )
    with tenant_tx(site.other_project.tenant_id):
        assert use_of(starts - HOUR, timezone.now()) == []
    client.force_login(site.people["lead"])
    page = flat(client.get("/t/helix/insights?part=cards&project=folding").content.decode())
    assert "Outside of the portal" in page
    assert "secret-lab" not in page
    assigned(site, "helix/hidden")
    assert "Outside of the portal" not in flat(
        client.get("/t/helix/insights?part=cards&project=folding").content.decode()
    )


def test_a_job_of_a_booking_is_compared_and_counts_once(site: Site) -> None:
    """Slurm counts three hours of two GPUs where the portal has two; minutes of preparation are none."""
    starts = an_hour() - 6 * HOUR
    for job, hours in (("4711", 2), ("4712", 3)):
        booking = a_booking(
            site.project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts
        )
        for gpu in Gpu.objects.order_by("number")[int(job[-1]) * 2 :][:2]:
            made = an_allocation(booking, gpu, starts=starts, ends=starts + hours * HOUR, state="ended")
            with as_owner():
                Allocation.objects.filter(id=made.id).update(job=int(job))
    sent(
        site,
        a_job(starts, 3),
        a_job(starts - timedelta(minutes=2), 3.05, number="4712"),
        a_job(starts, 1, number="4713"),
    )
    (row,) = said(site.operator.get("clusters/differences?cluster=main"))["items"]
    assert (row["job"], row["tenant"], row["portal_hours"], row["cluster_hours"]) == (
        "4711",
        "helix",
        "4.000",
        "6.000",
    )
    (use,) = said(site.operator.get("clusters/use"))["items"]
    assert (use["jobs"], use["gpu_hours"]) == (1, "2.000")
    client = Client()
    client.force_login(site.people["operator"])
    page = flat(client.get("/ops/clusters/main").content.decode())
    assert f"helix {row['booking']}" in page
    assert page.count('href="/ops/clusters"') > 1  # above the title, and in the menu
    assert '<th scope="row">physics</th>' in page


def test_a_file_is_kept_whole_or_not_at_all(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of the portal's host reads what sacct printed, in a zone."""
    file = tmp_path / "jobs"
    file.write_text(f"{HEAD}\n{line(AllocTRES='gres/gpu:v100=2')}\n", encoding="utf-8")
    with as_system():
        call_command("import_history", "--cluster=old", f"--slurm={file}", "--zone=Europe/Berlin")
    said_text = capsys.readouterr().out
    assert "1 jobs with GPUs kept of cluster old" in said_text
    assert "Types without a class: v100." in said_text
    file.write_text(f"{HEAD}\n{line(JobID='9')}\n{line(End='2199-01-01T00:00:00')}\n", encoding="utf-8")
    with as_system(), pytest.raises(CommandError, match="future"):
        call_command("import_history", "--cluster=old", f"--slurm={file}")
    with operator_tx():
        assert ObservedJob.objects.count() == 1
        text = exposition(metrics_of(timezone.now() + HOUR))
    assert 'gpu_portal_cluster_read_age_seconds{cluster="old"} 36' in text


def test_the_database_refuses_a_job_that_ends_before_it_starts(site: Site) -> None:
    """Whoever writes it."""
    sent(site, a_job(an_hour() - 5 * HOUR))
    with as_system(), pytest.raises(IntegrityError, match="observed_job_times"), transaction.atomic():
        ObservedJob.objects.update(ended=an_hour() - 50 * HOUR)


def outside_row(site: Site, who: str, since: datetime) -> list[str] | None:
    """The GPUs of each column of the row of cluster main on a reader's timeline; None: there is no row."""
    client = Client()
    client.force_login(site.people[who])
    tenant = site.other_project.tenant if who == "outsider" else site.tenant
    page = client.get(f"/t/{tenant.slug}/timeline", {"from": since.isoformat(), "part": "grid"})
    assert page.status_code == 200
    shown = flat(page.content.decode())
    found = re.search(r'<div class="tl-row out".*?<div class="dens".*?>(.*?)</div>', shown)
    return None if found is None else re.findall(r"<span[^>]*>(.*?)</span>", found[1])


def test_the_timeline_has_what_runs_outside_for_those_whose_it_is(site: Site) -> None:
    """Two GPUs for an hour and a half, one more for a quarter of an hour; the future is not known."""
    starts = an_hour() - 3 * HOUR
    sent(
        site,
        a_job(starts, 1.5),
        a_job(starts, 0.25, number="4712", gpus=1),
        a_job(starts, 3, number="4713", account="chemistry"),
        a_job(starts + 2.5 * HOUR, number="4714", ended=None, state="RUNNING"),
    )
    assigned(site)
    row = outside_row(site, "lead", starts - HOUR)
    assert row is not None
    assert row[:6] == ["", "2.2", "1", "1", "2", ""]
    # Nothing is known of the time after the records were read.
    assert set(row[6:]) == {""}
    assert outside_row(site, "outsider", starts - HOUR) is None
    client = Client()
    client.force_login(site.people["operator"])
    page = client.get("/ops/timeline", {"from": (starts - HOUR).isoformat(), "part": "grid"})
    # Operators also see what no project has.
    cells = flat(page.content.decode()).partition("tl-row out")[2].partition('class="dens"')[2]
    assert re.findall(r"<span[^>]*>(.*?)</span>", cells)[:5] == ["", "4.2", "3", "3", "2"]


def test_a_statement_has_what_ran_outside_without_a_charge(site: Site) -> None:
    first = an_hour().replace(day=1, hour=0)
    sent(site, a_job(first - 2 * HOUR, 3), a_job(first, 0.5, number="4712", account="chemistry"))
    assigned(site)
    client = Client()
    client.force_login(site.people["lead"])
    page = f"/t/{site.tenant.slug}/statements"
    shown = flat(client.get(page, {"month": f"{first:%Y-%m}", "project": "folding"}).content.decode())
    before = flat(client.get(page, {"month": f"{first - HOUR:%Y-%m}", "project": "folding"}).content.decode())
    for text, hours in ((shown, "2"), (before, "4")):
        card = text.partition('id="clusters"')[2].partition("</section>")[0]
        assert "not charged" in card
        assert f">{hours}" in card
        assert "chemistry" not in card
