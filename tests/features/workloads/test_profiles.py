"""Profiles of workloads: each figure is that of the raw rows, and each bottleneck is recognised."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from allocation.features.workloads.services import Workload, workloads_of
from allocation.models import Booking
from allocation.rules.workload_names import workload_of, workload_slug
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking
from tests.features.workloads.builders import Ran, ran
from tests.features.workloads.series import IDLE, KINDS, OVER_PCIE, SHORT_STALLS
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
NAMES = {
    "protein-fold-12": "protein-fold",
    "Protein fold 3": "protein-fold",
    "pretrain-7b-2": "pretrain-7b",
    "pretrain-7b": "pretrain-7b",
    "resnet50": "resnet50",
    "eval v2": "eval",
    "sweep-2026-11-28": "sweep",
    "2026-11-28": "",
    "17": "",
    "": "",
    "  --  ": "",
    "größe-1": "gr-e",
    "a" * 80: "a" * 63,
    "x_y.z-04": "x_y-z",
}


def workload(site: Site, name: str = "protein-fold") -> Workload:
    with as_system():
        (found,) = workloads_of([site.project], name)
    return found


def owner(site: Site) -> int:
    return int(site.people["researcher"].pk)


def test_a_workload_is_named_by_its_label_its_kind_or_its_booking_alike_in_sql(site: Site) -> None:
    bookings = [a_booking(site.project, owner(site)) for _ in range(len(NAMES) + 2)]
    with as_owner():
        for booking, name in zip(bookings, NAMES, strict=False):
            Booking.objects.filter(id=booking.id).update(name=name)
        label, kind = bookings[-2:]
        Booking.objects.filter(id=label.id).update(name="a-1", labels={"workload": "B c"})
        Booking.objects.filter(id=kind.id).update(name="a-1", ask={**kind.ask, "workload": "training"})
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, workload FROM allocation_booking")
            found = dict(cursor.fetchall())
        rows = Booking.objects.in_bulk([each.id for each in bookings])
    wanted = [*NAMES.values(), "b-c", "training"]
    assert [workload_of(rows[each.id]) for each in bookings] == wanted
    assert [found[each.id] for each in bookings] == wanted
    assert workload_slug("Über alles!") == "ber-alles"


@pytest.mark.parametrize(("kind", "row"), KINDS.items())
def test_each_bottleneck_is_recognised_of_two_runs_and_never_of_one(
    site: Site, kind: str, row: Mapping[str, Any]
) -> None:
    gpus = 2 if kind == "communication" else 1
    ran(site.project, owner(site), Ran(rows=(row,), gpus=gpus))
    (first,) = workload(site).profiles
    assert first.verdict is None, "a first run is never judged"
    ran(site.project, owner(site), Ran("protein-fold-2", rows=(row,), gpus=gpus, ago=48))
    verdict = workload(site).profiles[0].verdict
    assert verdict is not None
    assert (verdict.kind, verdict.agreed, verdict.judged) == (kind, 2, 2)
    assert verdict.evidence
    assert verdict.confidence >= 0.6


def test_short_stalls_are_waits_for_input_with_less_confidence_and_pcie_is_a_link(site: Site) -> None:
    for number in range(2):
        ran(site.project, owner(site), Ran(f"short-{number}", rows=(SHORT_STALLS,)))
        ran(site.project, owner(site), Ran(f"pcie-{number}", rows=(OVER_PCIE,), gpus=2))
    short, pcie = (workload(site, name).profiles[0].verdict for name in ("short", "pcie"))
    assert short is not None
    assert pcie is not None
    assert (short.kind, pcie.kind) == ("input", "communication")
    assert "GiB/s over PCIe" in pcie.sentence


def test_missing_data_gives_no_verdict_and_is_said(site: Site) -> None:
    for number in range(3):
        ran(site.project, owner(site), Ran(f"dark-{number}", rows=None))
        memory_only = {"bandwidth_avg": None}
        ran(site.project, owner(site), Ran(f"slices-{number}", rows=(memory_only,), watts=None))
    for name in ("dark", "slices"):
        data = said(site.researcher.get(f"workloads/{name}"))["profile"][0]
        assert (data["bottleneck"], data["busy"], data["coverage"]) == (None, None, 0)
        assert {"busy", "tensor", "kwh_per_run", "per_gpu_hour"} <= {*data["not_measured"]}
        assert (data["peak_memory_mb"] is None) == (name == "dark")


def test_runs_that_differ_give_no_verdict(site: Site) -> None:
    for number, kind in enumerate(("compute", "memory")):
        ran(site.project, owner(site), Ran(f"protein-fold-{number}", rows=(KINDS[kind],)))
    assert workload(site).profiles[0].verdict is None


def test_a_profile_is_what_the_rows_say(site: Site) -> None:
    """Two hours, the last half idle, on two GPUs at 500 W, 900 steps an hour for EUR 3 an hour."""
    rows = [KINDS["compute"]] * 12 + [IDLE]
    for number, memory in enumerate((30_000, 41_000, 20_000)):
        each = Ran(f"protein-fold-{number}", rows=rows, gpus=2, per_hour=900 + number * 10, memory_mb=memory)
        ran(site.project, owner(site), each)
    data = said(site.researcher.get("workloads/protein-fold"))["profile"][0]
    assert (data["gpu_class"], data["runs"], data["gpus"], data["gpu_hours"]) == ("h100", 3, 2, 12)
    assert (data["idle"], data["busy"], data["tensor"], data["coverage"]) == (50, 98, 52, 100)
    assert (data["peak_memory_mb"], data["memory_total_mb"]) == (41_000, 80_000)
    assert (data["per_gpu_hour"], data["rated_runs"], data["unit"]) == (pytest.approx(455), 3, "step")
    assert float(data["cost_per_run"]) == 6
    assert float(data["cost_per_unit"]) == pytest.approx(3 / 910)
    assert data["kwh_per_run"] == pytest.approx(2 * 0.5 * 2)
    assert data["kwh_per_unit"] == pytest.approx(1 / 910)
    assert data["not_measured"] == []


def test_a_slice_has_a_profile_of_its_own(site: Site) -> None:
    ran(site.project, owner(site), Ran())
    ran(site.project, owner(site), Ran("protein-fold-2", ask={"profile": "1g.10gb"}, ago=48))
    assert {each.slice for each in workload(site).profiles} == {"", "1g.10gb"}


def test_other_projects_and_organisations_see_nothing(site: Site) -> None:
    for number in range(2):
        ran(site.hidden, owner(site), Ran(f"secret-{number}"))
        ran(site.project, owner(site), Ran(f"protein-fold-{number}", ago=48))
    names = [each["workload"] for each in said(site.researcher.get("workloads"))["items"]]
    assert "protein-fold" in names
    assert "secret" not in names
    assert site.researcher.get("workloads/secret").status_code == 404
    assert site.outsider.get("workloads/protein-fold").status_code == 404
    assert "protein-fold" not in [each["workload"] for each in said(site.outsider.get("workloads"))["items"]]


def test_a_workload_is_named_later_also_when_it_is_over(site: Site) -> None:
    booking = ran(site.project, owner(site), Ran("run-1"))
    path = f"bookings/{booking.label}/workload"
    named = said(site.researcher.put(path, {"name": "Protein Fold"}))
    assert named == {"number": booking.label, "workload": "protein-fold"}
    assert said(site.researcher.get(f"bookings/{booking.label}"))["labels"] == {"workload": "protein-fold"}
    assert said(site.researcher.get(f"bookings/{booking.label}"))["workload"] == "protein-fold"
    assert site.researcher.get("workloads/run").status_code == 404
    assert site.researcher.put(path, {"name": "!!"}).status_code == 422
    assert site.outsider.put(path, {"name": "mine"}).status_code == 404
    assert said(site.researcher.put(path, {}))["workload"] == "run"


def test_the_pages_say_what_was_learnt_and_what_was_not_measured(site: Site) -> None:
    for number in range(2):
        booking = ran(site.project, owner(site), Ran(f"protein-fold-{number}", rows=(KINDS["input"],)))
        ran(site.project, owner(site), Ran(f"dark-{number}", rows=None))
    client = Client()
    client.force_login(site.people["researcher"])
    base = f"/t/{site.tenant.slug}"
    page = flat(client.get(f"{base}/workloads").content.decode())
    assert "Waits for input" in page
    one = flat(client.get(f"{base}/workloads/{site.project.slug}/protein-fold").content.decode())
    assert "Often waits for data" in one
    assert "Seen in 2 of 2 runs" in one
    dark = flat(client.get(f"{base}/workloads/{site.project.slug}/dark").content.decode())
    assert "No verdict: that needs 2 runs" in dark
    card = flat(client.get(f"{base}/bookings/{booking.label}").content.decode())
    assert "Earlier runs on 1 × " in card
    answer = client.post(f"{base}/bookings/{booking.label}/workload", {"name": "folding"})
    assert answer.status_code == 302
    assert client.get(f"{base}/workloads/{site.project.slug}/folding").status_code == 200
    assert client.get(f"{base}/workloads/{site.hidden.slug}/folding").status_code == 404
