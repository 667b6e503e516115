"""A demo that starts with a node whose agent was locked out."""

import subprocess
from pathlib import Path

import pytest

from agent.state.store import Store
from devtools.launch.programs import AGENTS, Demo
from devtools.local import prepare
from tests.agent.builders import KEYS, NOW, a_document, a_slice, signed


def _saved(path: Path) -> None:
    """Writes the record of an agent that has work."""
    store = Store(path, keys=KEYS, epoch=5, now=NOW)
    desired = a_document({"GPU-1": [a_slice()]}, epoch=5, generation=7)
    store.accept(signed(desired), desired)
    store.save()


def test_its_agent_enrols_again_and_starts_with_its_new_key_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Demo(tmp_path, "127.0.0.1", 9)
    locked, *others = AGENTS
    for name in AGENTS:
        demo.agent_state(name).mkdir(parents=True)
        demo.identity(name).write_text("{}")
        _saved(demo.agent_state(name) / "state.json")

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        folder = Path(command[3])
        folder.mkdir()
        (folder / locked).write_text("a token")
        return subprocess.CompletedProcess(command, 0, b"")

    monkeypatch.setattr(subprocess, "run", run)
    assert prepare(demo, {}) == {locked: "a token"}
    assert not demo.identity(locked).exists()
    new_key = {max(KEYS) + 2: b"n" * 32}
    started = Store(demo.agent_state(locked) / "state.json", keys=new_key, epoch=5, now=NOW)
    assert not started.remembers
    for name in others:
        assert demo.identity(name).exists()
        assert Store(demo.agent_state(name) / "state.json", keys=KEYS, epoch=5, now=NOW).remembers
