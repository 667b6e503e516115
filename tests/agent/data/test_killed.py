"""kill -9 of an agent in the middle of staging: the next one begins where the program was."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import wire
from allocation.services.nodes.redis_accounts import (
    account_password,
    account_url,
    agent_account_open,
    agent_account_replace,
)
from tests.agent.builders import NODE
from tests.agent.desk import Desk, seen
from tests.agent.processes import Portal, Process

pytestmark = pytest.mark.turn


@pytest.fixture
def portal(redis_client: "redis.Redis") -> Iterator[Portal]:
    password, digest = account_password()
    agent_account_open(NODE, digest)
    found = Portal(redis_client, account_url(NODE, password), digest)
    yield found
    agent_account_replace(NODE, None)
    found.close()


@pytest.fixture
def agent(portal: Portal, tmp_path: Path) -> Iterator[Process]:
    found = Process(portal, tmp_path / "state")
    yield found
    found.close()


def newest(portal: Portal) -> wire.ReportedAllocation | None:
    reports = [each for each in portal.reports() if each.allocations]
    return reports[-1].allocations[0] if reports else None


def test_a_killed_agent_resumes_what_it_was_fetching(portal: Portal, agent: Process, tmp_path: Path) -> None:
    cache, hooks = tmp_path / "cache", tmp_path / "hooks"
    cache.mkdir()
    hooks.mkdir()
    stage = hooks / "stage"
    stage.write_text(
        "#!/bin/sh\necho run >>$GPU_DATA_FOLDER/train\n"
        "while ! [ -e $GPU_DATA_CACHE/go ]; do sleep 0.1; done\n"
    )
    stage.chmod(0o755)
    options = ("--data", str(cache), "--hooks", str(hooks))
    agent.start(*options)
    seen(lambda: bool(portal.enrolments))
    desk = Desk(portal)
    # In one document: a booking that has started without its data doesn't fetch it any more.
    desk.book("BK-1", 0, data=("imagenet",))
    part = cache / ".staging" / "imagenet" / "train"
    seen(part.exists)
    seen(lambda: (found := newest(portal)) is not None and found.staging == ("imagenet",))

    agent.stop(signal.SIGKILL)
    agent.start(*options)
    # The run of the killed agent was ended, and another one continues in its folder.
    seen(lambda: part.exists() and part.read_text() == "run\nrun\n")
    assert desk.states("BK-1") == {"preparing"}
    (cache / "go").touch()

    desk.await_ready("BK-1")
    assert (cache / "imagenet" / "train").read_text() == "run\nrun\n"
    found = newest(portal)
    assert found is not None
    assert found.staging == ()
    seen(lambda: _listed(portal) == ["imagenet"])


def _listed(portal: Portal) -> list[str]:
    said = [each.data for each in portal.messages() if isinstance(each, wire.Telemetry) and each.data]
    return [each.name for each in said[-1]] if said else []
