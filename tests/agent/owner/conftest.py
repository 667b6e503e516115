"""What tests of owners share."""

import os
from pathlib import Path

import pytest

from tests.agent.owner.systemd_fake import Fake


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    found = Fake(tmp_path / "systemd")
    monkeypatch.setenv("PATH", f"{found.folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return found
