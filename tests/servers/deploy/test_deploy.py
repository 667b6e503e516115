"""A portal under an https address passes Django's own checks, and weak ones don't start."""

import os
import secrets
import subprocess
import sys

import pytest

from tests.servers.servers import ROOT

pytestmark = pytest.mark.turn

# Those of the stores are tested with stores (test_checks.py); models and addresses are checked
# whenever a command starts.
TAGS = (
    "security",
    "caches",
    "commands",
    "compatibility",
    "files",
    "staticfiles",
    "templates",
    "translation",
)


def production() -> dict[str, str]:
    """The environment of a web process as docs/configuration.md has it."""
    database, redis, agents = (secrets.token_hex(32) for _ in range(3))
    return {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "PUBLIC_URL": "https://gpu.example.org",
        "ALLOWED_HOSTS": "gpu.example.org",
        "BEHIND_TLS_PROXY": "1",
        "TRUSTED_PROXIES": "10.0.0.7",
        "SECRET_KEY": secrets.token_hex(32),
        "DATABASE_URL": f"postgresql://portal_web:{database}@db.example.org/portal",
        "REDIS_URL": f"rediss://portal:{redis}@valkey.example.org:6379",
        "AGENTS_REDIS_URL": f"rediss://portal:{agents}@agents.example.org:6379",
        "OPERATORS_URL": "http://operators:8001",
    }


def checked(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """`manage.py check`, which starts like every process."""
    return subprocess.run(
        [sys.executable, "manage.py", "check", *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_django_finds_nothing_in_settings_as_the_docs_have_them() -> None:
    tags = [word for tag in TAGS for word in ("--tag", tag)]
    done = checked(production(), "--deploy", *tags, "--fail-level", "WARNING")
    assert done.returncode == 0, done.stderr
    assert "no issues (1 silenced)" in done.stdout


WEAK = {
    "debug": ({"DEBUG": "1"}, "DEBUG is on"),
    "any host": ({"ALLOWED_HOSTS": "*"}, "ALLOWED_HOSTS accepts every host name"),
    "a key of one character": ({"SECRET_KEY": "a" * 64}, "SECRET_KEY has only 1 different"),
    "an old key that is weak": (
        {"SECRET_KEY_FALLBACKS": "ab" * 32},
        "SECRET_KEY_FALLBACKS[0] has only 2 different",
    ),
    "the image's database password": (
        {"DATABASE_URL": "postgresql://portal_web:postgres@db/portal"},
        "DATABASE_URL has a password of less than 16",
    ),
    "the user's name as password": (
        {"DATABASE_URL": "postgresql://portal_web_of_the_site:portal_web_of_the_site@db/portal"},
        "DATABASE_URL has a default password",
    ),
    "no database password": (
        {"DATABASE_URL": "postgresql://portal_web@db/portal"},
        "DATABASE_URL has no password",
    ),
    "no password at Redis": ({"REDIS_URL": "redis://valkey:6379"}, "REDIS_URL has no password"),
}


@pytest.mark.parametrize("name", WEAK)
def test_a_weak_portal_does_not_start_under_https(name: str) -> None:
    change, said = WEAK[name]
    done = checked({**production(), **change})
    assert done.returncode != 0
    assert said in done.stderr
    assert all(value not in done.stderr for value in change.values() if len(value) > 20)


def test_one_secret_for_two_purposes_does_not_start_under_https() -> None:
    environment = production()
    del environment["OPERATORS_URL"]
    done = checked({**environment, "AGENTS_MASTER_KEY": environment["SECRET_KEY"]})
    assert "SECRET_KEY and AGENTS_MASTER_KEY must all be different" in done.stderr


def test_a_try_on_the_own_machine_starts() -> None:
    plain = {"PUBLIC_URL": "http://localhost:8000", "DEBUG": "1"}
    assert checked({**production(), **plain}).returncode == 0


def test_all_that_is_weak_is_named_at_once() -> None:
    done = checked({**production(), "DEBUG": "1", "ALLOWED_HOSTS": "*"})
    assert "DEBUG is on" in done.stderr
    assert "ALLOWED_HOSTS accepts" in done.stderr
