"""What a loss of power leaves of files that were not synced."""

from pathlib import Path

import pytest

from agent.ports.handover import Handover
from tests.agent.builders import NOW, a_whole


@pytest.mark.parametrize("text", [b"", b"{", b"{}"])
def test_a_damaged_hand_over_leaves_nothing_behind(text: bytes, tmp_path: Path) -> None:
    """Its booking may be over, and then nobody else removes it."""
    allocation = a_whole("w1")
    Handover(tmp_path).give(allocation, "GPU-1", "GPU-1", NOW)
    (mark,) = tmp_path.glob("*/*/booking.json")
    mark.write_bytes(text)
    begun_again = Handover(tmp_path)
    assert begun_again.given == {}
    assert list(tmp_path.iterdir()) == []
    begun_again.give(allocation, "GPU-1", "GPU-1", NOW)
    assert begun_again.devices() == {"w1": "GPU-1"}
