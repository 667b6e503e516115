"""Reports of training libraries: how often, which numbers, and what a failure does."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_client.progress import MOST_METRICS, TrainingProgress


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the environment of a booking names."""
    path = tmp_path / "progress"
    path.touch()
    monkeypatch.setenv("GPU_BOOKING_PROGRESS", str(path))
    return path


def said(file: Path) -> dict[str, Any]:
    """What the file says."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_reports_come_every_few_seconds_and_the_last_one_always(file: Path) -> None:
    """Numbers of a GPU are read only for a report that is due."""
    now, reads = [100.0], list[float]()

    def metrics() -> dict[str, float]:
        reads.append(now[0])
        return {"loss": now[0]}

    progress = TrainingProgress(10, lambda: now[0])
    written = []
    for seconds in (0, 9, 10, 11, 25):
        now[0] = 100.0 + seconds
        written.append(progress.report(seconds, 40, metrics=metrics))
    assert written == [True, False, True, False, True]
    assert reads == [100.0, 110.0, 125.0]
    assert said(file) == {"step": 25, "of": 40, "unit": "step", "metrics": {"loss": 125.0}}
    assert progress.report(40, 40, always=True)
    assert said(file)["step"] == 40


def test_only_finite_numbers_are_said_and_no_more_than_the_portal_keeps(file: Path) -> None:
    """A number that has a name already is renewed; what is no number is left out."""
    progress = TrainingProgress()
    progress.measured({"loss": 2.0, "text": "x", "none": None, "nan": float("nan")})
    progress.measured({f"m{number}": number for number in range(30)} | {"loss": "1.5"})
    progress.report(1, 0)
    found = said(file)
    assert "of" not in found
    assert found["metrics"]["loss"] == 1.5
    assert len(found["metrics"]) == MOST_METRICS


def test_a_file_that_cannot_be_written_ends_no_training(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once."""
    file.unlink()
    progress = TrainingProgress()
    assert [progress.report(step, always=True) for step in (1, 2)] == [False, False]
    assert len([row for row in caplog.records if "was not written" in row.message]) == 1


def test_outside_of_a_booking_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_BOOKING_PROGRESS", raising=False)
    assert not TrainingProgress().report(1)
