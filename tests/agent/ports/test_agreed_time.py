"""A node's clock that jumps ends and starts nothing; one that was wrong before is followed."""

from pathlib import Path

import pytest

import wire
from agent.ports.clock import JUMP_S
from agent.ports.link import ServerTime
from tests.agent.builders import NOW, a_document, a_rig, a_whole

MINUTE = 60


@pytest.mark.parametrize("minutes", [2, 10, 60, -2, -10, -60])
def test_a_jump_of_the_clock_ends_nothing_early_or_late(tmp_path: Path, minutes: int) -> None:
    with a_rig(tmp_path) as rig:
        run = a_whole("one", starts=NOW, ends=NOW + 30 * MINUTE)
        rig.desire(a_document({rig.gpu: [run]}))
        rig.later(10)
        assert rig.sent.states() == {"one": "ready"}
        rig.wall.now += minutes * MINUTE
        # The server says another time, so the jump is not believed.
        rig.agent.handle(ServerTime(rig.wall.now - minutes * MINUTE), rig.sent)
        rig.later(28 * MINUTE)
        assert rig.sent.states() == {"one": "ready"}
        heartbeat = rig.sent.messages("heartbeat")[-1]
        assert isinstance(heartbeat, wire.Heartbeat)
        # The portal sees how wrong the clock is.
        assert heartbeat.sent_at == pytest.approx(rig.wall.now, abs=1)
        for _ in range(4):
            rig.later(MINUTE)
        assert rig.sent.states().get("one") != "ready"


def test_a_clock_that_the_server_confirms_is_followed(tmp_path: Path) -> None:
    with a_rig(tmp_path) as rig:
        run = a_whole("one", starts=NOW, ends=NOW + 30 * MINUTE)
        rig.desire(a_document({rig.gpu: [run]}))
        rig.later(10)
        rig.wall.now += 60 * MINUTE
        rig.agent.handle(ServerTime(rig.wall.now + JUMP_S / 2), rig.sent)
        for _ in range(4):
            rig.later(10)
        assert rig.sent.states().get("one") != "ready"
