"""`check --deploy` finds what is wrong with an installation: real servers, one fault each."""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import psycopg
import pytest
import redis
from django.core.checks import run_checks
from django.db import connection, connections
from django.utils import timezone
from pytest_django import DjangoDbBlocker, Settings

from allocation.services.nodes.redis_accounts import agent_account_open
from portal.checks import TAG
from portal.checks.clocks import clocks_check
from portal.checks.database import DURABLE, server_findings
from portal.storage.baseline import BASELINE
from tests.servers.deploy.test_deploy import checked, production
from tests.servers.servers import Servers

# Servers of tests keep nothing on disk, and say so; sessions are the tests' own role's.
TEST_SERVERS = {"portal.E105", "portal.E110"}
NODE = "gpu-a1-01"


@dataclass(frozen=True)
class Site:
    """The servers with all rights, and Django's settings."""

    admin: psycopg.Connection
    portal: Any
    agents: Any
    servers: Servers
    settings: Any = None


@pytest.fixture(scope="module")
def installed(servers: Servers, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    """Servers without faults, but for those of a test's servers; each test undoes what it does."""
    with (
        psycopg.connect(servers.admin_dsn, autocommit=True) as admin,
        redis.Redis.from_url(servers.access.url, decode_responses=True) as portal,
        redis.Redis.from_url(servers.agents_access.url, decode_responses=True) as agents,
        django_db_blocker.unblock(),
    ):
        for each in (portal, agents):
            each.config_set("appendonly", "yes")
        agent_account_open(NODE, bytes(32))
        yield Site(admin, portal, agents, servers)
        agents.execute_command("ACL DELUSER", f"agent-{NODE}")
        for each in (portal, agents):
            each.config_set("appendonly", "no")
        connections.close_all()


@pytest.fixture
def site(installed: Site, settings: Settings) -> Site:
    """An installation as the docs have it."""
    settings.PUBLIC_URL, settings.IS_HTTPS = "https://gpu.example.org", True
    settings.WHITENOISE_USE_FINDERS = False
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.7")]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.METRICS_ALLOW = []
    settings.ALLOWED_HOSTS = ["gpu.example.org"]
    settings.AGENTS_MASTER_KEY = secrets.token_hex(32)
    return replace(installed, settings=settings)


def found() -> dict[str, str]:
    """What is found besides what is always so here: sentences by id."""
    messages = run_checks(tags=[TAG], include_deployment_checks=True)
    assert all(message.hint for message in messages)
    return {str(m.id): str(m.msg) for m in messages if m.id not in TEST_SERVERS}


@pytest.mark.usefixtures("site")
def test_nothing_is_found_in_a_sound_installation() -> None:
    assert found() == {}
    off = run_checks(tags=[TAG])
    assert off == [], "stores are asked with --deploy only"


Change = Callable[[Site], AbstractContextManager[None]]


def sql(change: str, back: str) -> Change:
    @contextmanager
    def changed(site: Site) -> Iterator[None]:
        site.admin.execute(change)
        try:
            yield
        finally:
            site.admin.execute(back)

    return changed


def in_database(change: str, back: str) -> Change:
    @contextmanager
    def changed(site: Site) -> Iterator[None]:
        with psycopg.connect(site.servers.dsn("postgres"), autocommit=True) as owner:
            owner.execute(change)
            try:
                yield
            finally:
                owner.execute(back)

    return changed


def config(server: str, name: str, value: str) -> Change:
    @contextmanager
    def changed(site: Site) -> Iterator[None]:
        client = getattr(site, server)
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)

    return changed


def acl(server: str, change: str, back: str) -> Change:
    @contextmanager
    def changed(site: Site) -> Iterator[None]:
        client = getattr(site, server)
        client.execute_command("ACL", *change.split())
        try:
            yield
        finally:
            client.execute_command("ACL", *back.split())
            agent_account_open(NODE, bytes(32))

    return changed


def setting(**values: object) -> Change:
    @contextmanager
    def changed(site: Site) -> Iterator[None]:
        for name, value in values.items():
            setattr(site.settings, name, value)
        yield

    return changed


WEB = [ip_network("10.0.0.0/8")]
FAULTS: dict[str, tuple[Change, str, str]] = {
    "http": (setting(IS_HTTPS=False), "E001", "not an https address"),
    "static files": (setting(WHITENOISE_USE_FINDERS=True), "W002", "from the source tree"),
    "a key": (setting(SECRET_KEY="ab" * 32), "E003", "SECRET_KEY has only 2"),
    "a wide proxy": (setting(TRUSTED_PROXIES=WEB), "E004", "10.0.0.0/8"),
    "an unnamed proxy": (setting(TRUSTED_PROXIES=[]), "E005", "share its address"),
    "a proxy without TLS": (setting(SECURE_PROXY_SSL_HEADER=None), "E006", "in a loop"),
    "metrics to a proxy": (setting(METRICS_ALLOW=WEB), "E007", "contains a proxy"),
    "agents without TLS": (
        setting(AGENTS_REDIS_PUBLIC_URL="redis://valkey.example.org:6379/0"),
        "W008",
        "without TLS",
    ),
    "a role": (
        sql("ALTER ROLE portal_ops RENAME TO gone", "ALTER ROLE gone RENAME TO portal_ops"),
        "E106",
        "portal_ops is missing",
    ),
    "a strong role": (
        sql("ALTER ROLE portal_web BYPASSRLS", "ALTER ROLE portal_web NOBYPASSRLS"),
        "E107",
        "portal_web has wrong attributes",
    ),
    "a role with power": (
        sql("ALTER ROLE portal_system CREATEDB", "ALTER ROLE portal_system NOCREATEDB"),
        "E107",
        "portal_system has wrong attributes",
    ),
    "a way up": (
        sql("GRANT portal_ops TO portal_web", "REVOKE portal_ops FROM portal_web"),
        "E108",
        "portal_web can become portal_ops",
    ),
    "no time-out": (
        sql(
            "ALTER ROLE portal_web SET lock_timeout = 0",
            "ALTER ROLE portal_web SET lock_timeout = '5s'",
        ),
        "W109",
        "portal_web have no lock_timeout",
    ),
    "no time-out at all": (
        sql(
            "ALTER ROLE portal_system RESET statement_timeout",
            "ALTER ROLE portal_system SET statement_timeout = '60s'",
        ),
        "W109",
        "portal_system have no statement_timeout",
    ),
    "sessions of the dead": (
        sql(
            "ALTER ROLE portal_system RESET tcp_keepalives_idle",
            "ALTER ROLE portal_system SET tcp_keepalives_idle = '10s'",
        ),
        "W112",
        "Sessions of portal_system stay open for hours",
    ),
    "what everybody may do": (
        in_database(
            "GRANT EXECUTE ON FUNCTION lo_creat(integer) TO PUBLIC",
            "REVOKE EXECUTE ON FUNCTION lo_creat(integer) FROM PUBLIC",
        ),
        "W113",
        "Every role of the server may call lo_creat",
    ),
    "other first migrations": (
        in_database(
            "COMMENT ON SCHEMA public IS 'gpu-portal, first migrations of 2020'",
            f"COMMENT ON SCHEMA public IS 'gpu-portal, first migrations of {BASELINE}'",
        ),
        "E114",
        "its first migrations are of 2020",
    ),
    "an open database": (
        sql(
            "GRANT CONNECT ON DATABASE postgres TO PUBLIC",
            "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC",
        ),
        "W113",
        "Every role of the server may connect to postgres",
    ),
    "a migration": (
        in_database(
            "UPDATE django_migrations SET app = 'gone' WHERE app = 'billing'"
            " AND id = (SELECT max(id) FROM django_migrations WHERE app = 'billing')",
            "UPDATE django_migrations SET app = 'billing' WHERE app = 'gone'",
        ),
        "E111",
        "1 migrations are not applied: billing",
    ),
    "portal's memory": (config("portal", "maxmemory", "0"), "E203", "REDIS_URL has no maxmemory"),
    "agents' memory": (
        config("agents", "maxmemory", "0"),
        "E203",
        "AGENTS_REDIS_URL has no maxmemory",
    ),
    "eviction": (
        config("portal", "maxmemory-policy", "allkeys-lru"),
        "E204",
        "REDIS_URL evicts data when it is full (allkeys-lru)",
    ),
    "agents' eviction": (
        config("agents", "maxmemory-policy", "volatile-ttl"),
        "E204",
        "(volatile-ttl)",
    ),
    "forgetting": (config("portal", "appendonly", "no"), "W205", "loses everything"),
    "an open server": (
        acl("agents", "SETUSER default on >x", "SETUSER default off resetpass"),
        "E206",
        "default user",
    ),
    "unbounded connections": (config("agents", "maxmemory-clients", "0"), "W208", "does not limit"),
    "an account that selects": (
        acl("agents", "SETUSER agent-gpu-a1-01 +select", "SETUSER agent-gpu-a1-01 on"),
        "E209",
        "agent-gpu-a1-01 may do more than its node needs: +select",
    ),
    "an account of all keys": (
        acl("agents", "SETUSER agent-gpu-a1-01 ~*", "SETUSER agent-gpu-a1-01 on"),
        "E209",
        "~*",
    ),
    "an account that reads all channels": (
        acl("agents", "SETUSER agent-gpu-a1-01 allchannels", "SETUSER agent-gpu-a1-01 on"),
        "E209",
        "&*",
    ),
    "an unknown user": (
        acl("agents", "SETUSER mallory on >x ~* +@all", "DELUSER mallory"),
        "W210",
        "mallory",
    ),
    "a server that is away": (
        setting(BROKER_REDIS_URL="redis://portal:x@127.0.0.1:1/0"),
        "E201",
        "REDIS_URL did not answer",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(site: Site, name: str) -> None:
    change, identifier, words = FAULTS[name]
    with change(site):
        assert words in found().get(f"portal.{identifier}", "")


def test_one_server_by_two_names_is_seen_through(site: Site) -> None:
    site.settings.AGENTS_REDIS_URL = site.settings.BROKER_REDIS_URL.replace("127.0.0.1", "localhost")
    assert "name the same server" in found()["portal.E202"]


def test_a_bare_database_of_another_encoding_is_not_the_portals(site: Site) -> None:
    site.admin.execute(
        "CREATE DATABASE bare TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C' LOCALE_PROVIDER libc"
    )
    own = connection.settings_dict["NAME"]
    connection.close()
    try:
        connection.settings_dict["NAME"] = "bare"
        sentences = found()
    finally:
        connection.close()
        connection.settings_dict["NAME"] = own
        site.admin.execute("DROP DATABASE bare WITH (FORCE)")
    assert "encoding is SQL_ASCII" in sentences.get("portal.E103", ""), sentences
    assert "btree_gist is missing" in sentences["portal.E104"]
    assert "are not applied" in sentences["portal.E111"]


@pytest.mark.usefixtures("site")
def test_a_database_that_is_away_is_one_finding() -> None:
    connection.close()
    own = connection.settings_dict["HOST"]
    try:
        connection.settings_dict["HOST"] = "/nowhere"
        assert found().keys() == {"portal.E101"}
    finally:
        connection.settings_dict["HOST"] = own


def test_an_old_server_and_one_that_forgets_are_named() -> None:
    sound = {
        "server_version_num": "160004",
        "server_encoding": "UTF8",
        **dict.fromkeys(DURABLE, "on"),
    }
    assert [*server_findings(sound)] == []
    broken = {"server_version_num": "150004", "server_version": "15.4", "fsync": "off"}
    broken |= {"synchronous_commit": "off"}
    ids = [message.id for message in server_findings({**sound, **broken})]
    assert ids == ["portal.E102", "portal.E105", "portal.E105"]


@pytest.mark.usefixtures("site")
def test_clocks_are_compared_with_all_three_servers() -> None:
    assert clocks_check() == []
    ahead = clocks_check(clock=lambda: timezone.now() + timedelta(seconds=90))
    assert [message.id for message in ahead] == ["portal.E301"] * 3
    apart = re.search(r"([0-9.]+) s apart", ahead[0].msg)
    # What a busy machine takes to ask the server is in it.
    assert apart
    assert 60 < float(apart[1]) <= 90


@pytest.mark.long
def test_the_command_finds_nothing_else_in_a_web_process(site: Site) -> None:
    """As the docs have it, with the web's own role; a test's PostgreSQL is not durable."""
    environment = {
        **production(),
        "AGENTS_MASTER_KEY": "",
        "DATABASE_URL": site.servers.dsn("portal_web"),
        "REDIS_URL": site.servers.access.url,
        "AGENTS_REDIS_URL": site.servers.agents_access.url,
        "STATIC_COLLECTED": "1",
    }
    done = checked(environment, "--deploy")
    assert set(re.findall(r"\((\w+\.\w+)\)", done.stderr)) == {"portal.E105"}, done.stderr
    environment["AGENTS_MASTER_KEY"] = secrets.token_hex(32)
    other = checked({**environment, "DATABASE_URL": site.servers.dsn("portal_system")}, "--deploy")
    assert "This process connects as portal_system instead of portal_web." in other.stderr
    assert "This web process has AGENTS_MASTER_KEY" in other.stderr
