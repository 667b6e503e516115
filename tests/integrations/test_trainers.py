"""The callbacks inside real trainers of Hugging Face and Lightning: `make test-trainers`."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integrations.portal import FOLDER
from tests.servers.servers import ROOT

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif("TRAINERS" not in os.environ, reason="`make test-trainers` installs the libraries"),
]
FLOWS = Path(__file__).parent / "flows"


@pytest.mark.parametrize("library", ["huggingface", "lightning"])
def test_a_training_says_its_steps_and_its_loss(library: str, tmp_path: Path) -> None:
    """The last report is that of the last of twelve steps."""
    file = tmp_path / "progress"
    file.touch()
    done = subprocess.run(
        [
            str(ROOT / os.environ["TRAINERS"] / "bin" / "python"),
            str(FLOWS / f"{library}_train.py"),
            str(tmp_path),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": f"{ROOT}:{FOLDER / library}",
            "GPU_BOOKING_PROGRESS": str(file),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(file.read_text(encoding="utf-8"))
    assert (said["step"], said["of"], said["unit"]) == (12, 12, "step")
    assert said["metrics"]["loss"] > 0
