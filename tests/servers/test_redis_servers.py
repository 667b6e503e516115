"""Addresses of Redis: of one server, and of the primary that Sentinels name."""

import copy
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis

from portal import env
from portal.env import BadSetting
from tenants.platform.stores.patience import Patience
from tenants.platform.stores.redis_servers import (
    BadAddress,
    async_client,
    broker_address,
    channels_host,
    places_of,
    redis_client,
    sentinel_address,
)

URL = "redis+sentinel://portal:p%40ss@one:26379,two/stores?sentinel_user=asks&sentinel_password=secret"


def test_an_address_of_sentinels_has_both_accounts_and_the_name() -> None:
    at = sentinel_address(f"{env.redis_database(URL, 2)}")
    assert at is not None
    assert at.sentinels == (("one", 26379), ("two", 26379))
    assert (at.name, at.database) == ("stores", 2)
    assert at.account == {"db": 2, "username": "portal", "password": "p@ss"}
    assert at.sentinel_account()["username"] == "asks"
    assert "p@ss" not in repr(at)
    assert "secret" not in repr(at)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://one",
        "redis+sentinel:///name",
        "redis+sentinel://one:port/name",
        "redis+sentinel://one/name?what=1",
    ],
)
def test_what_names_no_sentinel_or_no_primary_is_refused(url: str) -> None:
    with pytest.raises(BadAddress):
        sentinel_address(url)
    with pytest.raises(BadSetting, match="REDIS_URL"):
        env.redis_database(url, 0)


@pytest.mark.parametrize("url", ["redis://one:1,two:1", "redis+sentinel://one/name/1"])
def test_the_portal_takes_no_list_of_servers_and_no_database_of_its_own(url: str) -> None:
    with pytest.raises(BadSetting):
        env.redis_database(url, 0)


def test_two_addresses_of_one_server_are_known_whoever_signs_in() -> None:
    turned = "redis+sentinel://two,one/stores"
    assert places_of(URL) == places_of(turned) != places_of("redis+sentinel://two,one/agents")
    assert places_of("redis://a:x@h") == places_of("redis://h:6379/2")
    with pytest.raises(BadSetting, match="another server"):
        env.redis_separate_check(turned, URL)


def test_celery_gets_each_sentinel_and_the_name_of_the_primary() -> None:
    url, options = broker_address(env.redis_database(URL, 0))
    assert url == "sentinel://portal:p%40ss@one:26379/0;sentinel://portal:p%40ss@two:26379/0"
    assert options["master_name"] == "stores"
    assert broker_address("redis://h:1/0") == ("redis://h:1/0", {})


def test_live_pages_get_the_sentinels_and_the_accounts() -> None:
    host = channels_host(env.redis_database(URL, 1), retry=None)
    assert host["sentinels"] == [("one", 26379), ("two", 26379)]
    assert (host["master_name"], host["db"], host["password"], host["retry"]) == ("stores", 1, "p@ss", None)
    assert channels_host("redis://h:1/1") == {"address": "redis://h:1/1"}


def test_a_client_asks_sentinels_or_takes_the_server() -> None:
    for make in (redis_client, async_client):
        kept = make(env.redis_database(URL, 2), socket_timeout=3).connection_pool
        assert kept.connection_kwargs["db"] == 2
        assert kept.connection_kwargs["socket_timeout"] == 3
        assert type(kept).__name__ == "SentinelConnectionPool"
        plain = make("redis://h:1/2", socket_timeout=3).connection_pool
        assert plain.connection_kwargs["host"] == "h"


def test_nodes_get_a_list_of_servers_and_never_sentinels(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "AGENTS_REDIS_PUBLIC_URL"
    monkeypatch.delenv(name, raising=False)
    assert env.redis_of_nodes(name, "redis://u:p@h:1") == "redis://u:p@h:1/0"
    with pytest.raises(BadSetting, match=name):
        env.redis_of_nodes(name, URL)
    monkeypatch.setenv(name, "rediss://one:6380,two:6380")
    assert env.redis_of_nodes(name, URL) == "rediss://one:6380,two:6380/0"
    for bad in (URL, "redis://one,/", "redis://one/3"):
        monkeypatch.setenv(name, bad)
        with pytest.raises(BadSetting, match=name):
            env.redis_of_nodes(name, URL)


class Hanging:
    """A server that takes connections, counts them and answers nothing."""

    def __enter__(self) -> "Hanging":
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0)
        self._taken: list[socket.socket] = []
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listening, *self._taken):
            each.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listening.getsockname()[1]}/0"

    def asked(self) -> int:
        """How often it was asked so far."""
        with suppress(BlockingIOError):
            while True:
                self._taken.append(self._listening.accept()[0])
        return len(self._taken)


def test_a_server_that_hangs_is_waited_for_once_and_not_by_each_command() -> None:
    with Hanging() as server:
        clients = [redis_client(server.url, socket_timeout=0.2) for _ in range(2)]
        for client in clients * 10:
            with pytest.raises(redis.RedisError):
                client.get("x")
            with client.pipeline() as pipe:
                pipe.set("x", 1)
                with pytest.raises(redis.RedisError):
                    pipe.execute()
        assert server.asked() == 1


def test_a_rest_doubles_with_each_time_out_and_ends_with_an_answer() -> None:
    at = [0.0]
    patience = Patience(lambda: at[0])

    def late() -> int:
        raise redis.TimeoutError

    def run(do: Callable[[], int]) -> object:
        try:
            return copy.deepcopy(patience).call_with_retry(do, lambda _: None)
        except redis.RedisError as error:
            return type(error).__name__

    waited = {}
    for moment in (0.0, 0.5, 1.0, 2.9, 3.0, 6.9, 7.0, 10.9, 11.0):
        at[0] = moment
        waited[moment] = run(late) == "TimeoutError"
    assert [moment for moment, has_asked in waited.items() if has_asked] == [0.0, 1.0, 3.0, 7.0, 11.0]
    at[0] = 15.0
    # A command that connects first is one question.
    assert run(lambda: patience.call_with_retry(lambda: 7, lambda _: None)) == 7
    assert run(lambda: 8) == 8


def test_a_server_that_refuses_is_asked_by_each_command() -> None:
    patience, asked = Patience(), list[int]()

    def refused() -> None:
        asked.append(1)
        raise redis.ConnectionError

    for _ in range(3):
        with pytest.raises(redis.ConnectionError):
            patience.call_with_retry(refused, lambda _: None)
    assert len(asked) == 3
