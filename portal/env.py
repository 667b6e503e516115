"""Values from the environment, validated when a process starts, and the commit of its code."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from holidays import list_supported_countries
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from tenants.platform.stores.redis_servers import (
    SCHEME,
    BadAddress,
    database_address,
    places_of,
    sentinel_address,
)

COMMIT_DIGITS = 16
"""Hexadecimal digits that are kept of a commit: enough to identify it in any repository."""
_TIMEOUT_SECONDS = 10
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})
SECRET_LENGTH_MIN = 32
# One in ten million random hexadecimal strings of 32 characters has fewer.
DISTINCT_MIN = 8
PASSWORD_LENGTH_MIN = 16
MAIL_PORTS = {"smtp": ("", 25), "smtp+starttls": ("starttls", 587), "smtps": ("tls", 465)}
PLACEHOLDERS = ("change", "secret", "insecure", "example", "password")


class BadSetting(Exception):
    """An environment variable is missing or invalid; the message names it."""


@dataclass(frozen=True)
class Database:
    """A PostgreSQL address in parts; `options` are libpq's further parameters."""

    name: str
    user: str = ""
    password: str = field(default="", repr=False)
    host: str = ""
    port: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MailServer:
    """Where mail is sent: `security` is "", "starttls" or "tls"; `folder` is for mail as files."""

    backend: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    security: str = ""
    folder: str = ""


def env_str(name: str, default: str | None = None) -> str:
    """The value of `name`, stripped; an empty value counts as missing.

    Raises BadSetting when it is missing and there is no default.
    """
    value = os.environ.get(name, "").strip()
    if value:
        return value
    if default is None:
        raise BadSetting(f"{name} is not set and has no default.")
    return default


def env_bool(name: str, *, default: bool) -> bool:
    """True for 1/true/yes/on, False for 0/false/no/off. Raises BadSetting for other values."""
    value = os.environ.get(name, "").strip().lower()
    if not value:
        return default
    if value in TRUE_WORDS:
        return True
    if value in FALSE_WORDS:
        return False
    raise BadSetting(f"{name}={value!r} is neither yes nor no. Use one of 1, 0, true, false.")


def env_choice(name: str, choices: Mapping[str, str], default: str) -> str:
    """The value of the choice that the variable names. Raises BadSetting."""
    text = env_str(name, default).lower()
    if text not in choices:
        raise BadSetting(f"{name} is {text!r}: it is one of {', '.join(choices)}.")
    return choices[text]


def env_collector(name: str) -> str:
    """The address of a trace collector, or "". Raises BadSetting, also without OpenTelemetry."""
    address = env_str(name, "")
    if address and urlsplit(address).scheme not in ("http", "https"):
        raise BadSetting(f"{name} is not an http or https address.")
    if address and find_spec("opentelemetry") is None:
        raise BadSetting(f"{name} needs the extra `traces`: in the portal's folder, pip install '.[traces]'.")
    return address


def env_int(name: str, default: int, *, low: int, high: int) -> int:
    """A whole number with low <= number <= high. Raises BadSetting otherwise."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    try:
        number = int(value)
    except ValueError:
        raise BadSetting(f"{name}={value!r} is not a whole number.") from None
    if not low <= number <= high:
        raise BadSetting(f"{name}={number} is outside {low} to {high}.")
    return number


def env_list(name: str, default: str = "") -> list[str]:
    """The comma-separated values, without empty ones."""
    value = env_str(name, default)
    return [word.strip() for word in value.split(",") if word.strip()]


def env_networks(name: str) -> list[IPv4Network | IPv6Network]:
    """The comma-separated networks or addresses, such as 10.0.0.0/8. Raises BadSetting."""
    try:
        return [ip_network(word) for word in env_list(name)]
    except ValueError as error:
        raise BadSetting(f"{name}: {error}.") from None


def env_secret(name: str, *, is_needed: bool = True) -> str:
    """A secret from `name`, or from the file that `name`_FILE names; "" if it may be missing.

    Raises BadSetting when it is missing, shorter than 32 characters or an obvious placeholder;
    the message never repeats the value.
    """
    path = os.environ.get(f"{name}_FILE", "").strip()
    default = None if is_needed else ""
    value = Path(path).read_text(encoding="utf-8").strip() if path else env_str(name, default)
    if not value and not is_needed:
        return ""
    if len(value) < SECRET_LENGTH_MIN:
        raise BadSetting(f"{name} is shorter than {SECRET_LENGTH_MIN} characters.")
    if any(word in value.lower() for word in PLACEHOLDERS):
        raise BadSetting(f"{name} looks like a placeholder. Make one: openssl rand -hex 32")
    return value


def env_database() -> Database:
    """The PostgreSQL URL in DATABASE_URL. Raises BadSetting when it is not one."""
    return database_parse(env_str("DATABASE_URL"))


def database_parse(url: str) -> Database:
    """Parts of a postgresql:// URL, including socket folders (`?host=/run/…`). Raises
    BadSetting."""
    name = "DATABASE_URL"
    if not url.startswith(("postgresql://", "postgres://")):
        raise BadSetting(f"{name} must begin with postgresql://. No other database is supported.")
    try:
        parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        raise BadSetting(f"{name} can't be read as a PostgreSQL URL.") from None
    if "dbname" not in parts:
        raise BadSetting(f"{name} names no database.")
    return Database(
        name=parts.pop("dbname"),
        user=parts.pop("user", ""),
        password=parts.pop("password", ""),
        host=parts.pop("host", ""),
        port=parts.pop("port", ""),
        options=parts,
    )


def env_mail(name: str) -> MailServer | None:
    """The mail server in `name`, or in the file that `name`_FILE names; None if there is none.

    smtp://host:25, smtp+starttls://user:password@host:587, smtps://host:465 or file:///a/folder.
    Raises BadSetting. The message never repeats the value, which may contain a password.
    """
    path = os.environ.get(f"{name}_FILE", "").strip()
    value = Path(path).read_text(encoding="utf-8").strip() if path else env_str(name, "")
    if not value:
        return None
    bad = BadSetting(f"{name} must look like smtp+starttls://user:password@host:587.")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise bad from None
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return MailServer("django.core.mail.backends.filebased.EmailBackend", folder=parts.path)
    if parts.scheme not in MAIL_PORTS or not parts.hostname or parts.path not in {"", "/"}:
        raise bad
    security, usual = MAIL_PORTS[parts.scheme]
    return MailServer(
        backend="django.core.mail.backends.smtp.EmailBackend",
        host=parts.hostname,
        port=port or usual,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        security=security,
    )


def redis_database(url: str, number: int, name: str = "REDIS_URL") -> str:
    """The Redis URL `url`, which has no database number, for logical database `number`."""
    parts = urlsplit(url)
    try:
        at = sentinel_address(url)
    except BadAddress as error:
        raise BadSetting(f"{name}: {error}.") from None
    if at is None and (parts.scheme not in {"redis", "rediss"} or not parts.hostname or "," in parts.netloc):
        raise BadSetting(f"{name} must look like redis://host:port or rediss://host:port.")
    if parts.path.strip("/") != (at.name if at else ""):
        raise BadSetting(f"{name} must not name a database: the portal chooses the numbers.")
    return database_address(url, number)


def redis_of_nodes(name: str, default: str) -> str:
    """The address of the agents' server for nodes; several servers have commas between them.

    Nodes ask no Sentinel: they take the server of the list that has their account and can be written to.
    """
    url = env_str(name, "" if default.startswith(f"{SCHEME}://") else default)
    if not url or url.startswith(f"{SCHEME}://"):
        raise BadSetting(f"{name} is needed with Sentinels, such as rediss://one:6380,two:6380.")
    parts = urlsplit(url)
    for place in parts.netloc.split(","):
        redis_database(urlunsplit(parts._replace(netloc=place)), 0, name)
    return database_address(url, 0)


def redis_separate_check(agents: str, other: str) -> str:
    """Returns the Redis URL `agents`. Raises BadSetting if it names the server of `other`.

    A node that fills the agents' server must not stop tasks, live pages and sign-in limits.
    """
    if places_of(agents) == places_of(other):
        raise BadSetting(
            "AGENTS_REDIS_URL must name another server than REDIS_URL: nodes need a separate one."
        )
    return agents


def env_origin(name: str, default: str) -> str:
    """A web origin such as https://gpu.example.org, without a path. Raises BadSetting."""
    value = env_str(name, default).rstrip("/")
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path:
        raise BadSetting(f"{name}={value!r} is not an address like https://gpu.example.org.")
    return value


def env_country(name: str) -> str:
    """A country, or a part of one, whose public holidays are known, such as DE or DE-BY; "" if it is
    missing. Raises BadSetting."""
    value = env_str(name, "")
    country, _, part = value.partition("-")
    known = list_supported_countries()
    if value and (country not in known or (part and part not in known[country])):
        raise BadSetting(f"{name}={value!r} is not a country like DE, or a part of it like DE-BY.")
    return value


def secret_weakness(value: str) -> str:
    """Why a secret of sufficient length can be guessed; empty when it cannot."""
    return f"has only {len(set(value))} different characters" if len(set(value)) < DISTINCT_MIN else ""


def password_weakness(user: str, password: str) -> str:
    """Why the password of a store is weak; empty when it is not."""
    if not password:
        return "has no password"
    if len(password) < PASSWORD_LENGTH_MIN:
        return f"has a password of less than {PASSWORD_LENGTH_MIN} characters"
    plain = password.lower()
    if plain == user.lower() or any(word in plain for word in PLACEHOLDERS):
        return "has a default password"
    return secret_weakness(password).replace("has", "has a password that has")


def code_commit(root: Path, named: str) -> str:
    """Returns the commit of the code in `root`, as `1a2b3c4d5e6f7a8b`, or `unknown`.

    `named` is the commit that the image was built with. If it is empty, the commit is read from
    git, with `+changes` after it if files differ. Returns `unknown` if git is missing, or if `root`
    is not the top folder of a repository.
    """
    if named:
        return named[:COMMIT_DIGITS]
    top, commit = (_git(root, "rev-parse", what) for what in ("--show-toplevel", "HEAD"))
    if not top or not commit or Path(top).resolve() != root.resolve():
        return "unknown"
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return commit[:COMMIT_DIGITS] + ("+changes" if changed != "" else "")


def _git(root: Path, *words: str) -> str | None:
    """Returns the output of git, or None if the command fails."""
    try:
        done = subprocess.run(  # noqa: S603  fixed arguments
            ["git", "-C", str(root), *words],  # noqa: S607  the path of git differs
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
