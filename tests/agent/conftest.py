"""What the agent's tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.builders import Rig, a_rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with a_rig(tmp_path) as found:
        yield found
