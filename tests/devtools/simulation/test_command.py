"""`python -m devtools.simulation`: the same answer each time, and nothing real is touched."""

import gzip
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from allocation.models import Allocation, Booking
from allocation.services.bookings.creation import booking_request
from devtools.simulation.command import Command
from tests.builders_allocation import a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import Plant

pytestmark = pytest.mark.turn


def simulated(folder: Path, **options: Any) -> tuple[str, dict[str, Any]]:  # noqa: ANN401
    out, path = StringIO(), folder / "out.json"
    with as_system():
        call_command(Command(), **options, json=path, stdout=out)
    return out.getvalue(), json.loads(path.read_text())


def test_a_made_up_site_has_the_same_figures_each_time(plant: Plant, tmp_path: Path) -> None:
    asked = {"gpus": "h100=8", "demand": "load=120,tenants=2", "days": 1, "seed": 3}
    table, figures = simulated(tmp_path, **asked)
    assert (table, figures) == simulated(tmp_path, **asked)
    assert figures["classes"][0]["gpus"] == 8
    assert figures["utilisation_ppm"] > 100_000
    assert "Jain" in table
    assert simulated(tmp_path, **{**asked, "seed": 4})[1] != figures


def test_a_trace_runs_on_a_made_up_fleet(plant: Plant, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv.gz"
    rows = "name,time,application,num_replicas,batch_size\na,10,cifar10,2,64\nb,20,bert,4,64\n"
    trace.write_bytes(gzip.compress(rows.encode()))
    _, figures = simulated(tmp_path, gpus="h100=8", trace=trace, days=3)
    assert [each["tenant"] for each in figures["tenants"]] == ["bert", "cifar10"]
    assert figures["finished"] == 2
    _, figures = simulated(tmp_path, gpus="h100=8", trace=trace, days=3, skip=1)
    assert figures["tenants"] == []


def test_the_live_site_is_looked_at_and_left_alone(plant: Plant, tmp_path: Path) -> None:
    lab = a_lab("helix", gpus=0, limit=2)
    with as_system():
        request = a_booking_request(lab.project, an_ask(hours=5))
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    _, figures = simulated(tmp_path, live=True, demand="load=1", days=1)
    assert figures["tiers"][0]["asked"] >= 1
    with as_system():
        assert Booking.objects.get(id=booking.id).state == "requested"
        assert not Allocation.objects.exists()


@pytest.mark.parametrize("wrong", [{"demand": "lode=3"}, {"gpus": "h100"}, {"policy": ["999"]}])
def test_what_it_does_not_understand_it_says(plant: Plant, tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(CommandError):
        simulated(tmp_path, **{"gpus": "h100=8", "days": 1, **wrong})
