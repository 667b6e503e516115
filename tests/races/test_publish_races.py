"""A slow publisher must not put an older assignment over a newer one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import psycopg
import pytest

import wire
from allocation.models import Gpu, Node
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.publish.publish import publish_due
from allocation.services.runs.end import generations_raise
from tests.builders_allocation import NOW, a_model, a_policy
from tests.races.together import apart
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until
from tests.services.plant import NAME, a_plant

pytestmark = pytest.mark.races
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def test_what_is_published_last_is_the_newest(
    real_db: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_model(enrolled=False)
    a_policy()
    arrived, go = Event(), Event()
    really = wire.seal

    def slow(message: wire.Desired, *, key: bytes, key_version: int) -> wire.Envelope:
        if not arrived.is_set():
            arrived.set()
            assert go.wait(30)
        return really(message, key=key, key_version=key_version)

    def bump_then_publish() -> int:
        generations_raise(Gpu.objects.values_list("id", flat=True))
        return publish_due(NOW)

    with (
        a_plant(tmp_path),
        ThreadPoolExecutor(2) as pool,
        psycopg.connect(real_db.admin_dsn, autocommit=True) as admin,
    ):
        with as_system():
            generations_raise(Gpu.objects.values_list("id", flat=True))
        monkeypatch.setattr(wire, "seal", slow)
        first = pool.submit(lambda: apart(lambda: publish_due(NOW)))
        try:
            assert arrived.wait(30)
            second = pool.submit(lambda: apart(bump_then_publish))

            def is_settled() -> bool:
                row = admin.execute(WAITING).fetchone()
                return second.done() or (row is not None and row[0] > 0)

            wait_until(is_settled, seconds=20)
        finally:
            go.set()
        assert (first.result(30), second.result(30)) == (1, 1)
        assert_newest_is_published()


def assert_newest_is_published() -> None:
    with as_system():
        node = Node.objects.get(name=NAME)
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    written = wire.Envelope.from_json(raw).body
    assert f'"generation":{node.generation}'.encode() in written
    assert node.published_generation == node.generation
