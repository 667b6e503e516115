"""Creates the database and its roles, with their rights and time-outs.

`python -m portal.storage.database` reads the environment; the launcher and the tests call
`roles_ensure`. The migration that creates a table grants the rights to it.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from portal.env import BadSetting, env_int, env_secret, env_str
from portal.storage.public_rights import public_rights_revoke, system_databases_close

EXTENSIONS = ("btree_gist",)


@dataclass(frozen=True)
class RoleTimeouts:
    """Time limits of a login role's sessions in seconds; 0 means no limit.

    `statement` limits one statement, `lock` its wait for a lock, and `idle` the time without a
    statement in an open transaction, which keeps its locks.
    """

    statement: int
    lock: int
    idle: int


# docs/configuration.md explains the values. Each has an environment variable.
ROLE_TIMEOUTS = {
    "portal_web": RoleTimeouts(statement=10, lock=5, idle=60),
    "portal_operators": RoleTimeouts(statement=30, lock=5, idle=120),
    "portal_system": RoleTimeouts(statement=60, lock=20, idle=300),
    "portal_owner": RoleTimeouts(statement=0, lock=60, idle=0),
}
MAX_TIMEOUT_SECONDS = 24 * 3600
# The PostgreSQL settings of these limits.
TIMEOUT_SETTINGS = {
    "statement": "statement_timeout",
    "lock": "lock_timeout",
    "idle": "idle_in_transaction_session_timeout",
}
# The server notices after 25 s that a client's machine lost power and releases its locks, which a
# standby solver waits for. Linux's defaults take two hours. Local sockets ignore these settings.
KEEPALIVES = {
    "tcp_keepalives_idle": "10s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25s",
}
# All roles, and whether they bypass row-level security.
BYPASSES_ROW_SECURITY = {
    "portal_owner": True,
    "portal_web": False,
    "portal_operators": False,
    "portal_system": True,
    "portal_ops": True,
}
# Which role may switch to which: the operators' process starts with the web's role and switches to
# portal_ops for one transaction at a time. A web process cannot switch. The owner needs portal_ops
# to enrol the demo's nodes.
MEMBERSHIPS = (
    ("portal_operators", "portal_web"),
    ("portal_operators", "portal_ops"),
    ("portal_owner", "portal_ops"),
)


@dataclass(frozen=True)
class Passwords:
    """Passwords of the four roles that may log in."""

    owner: str = field(repr=False)
    web: str = field(repr=False)
    operators: str = field(repr=False)
    system: str = field(repr=False)


@dataclass(frozen=True)
class Role:
    """A database role; `bypass` is BYPASSRLS. A role without a password cannot log in."""

    name: str
    bypass: bool
    password: str | None = field(default=None, repr=False)


def roles_ensure(
    admin_dsn: str,
    passwords: Passwords,
    *,
    database: str = "portal",
    timeouts: Mapping[str, RoleTimeouts] = ROLE_TIMEOUTS,
) -> None:
    """Creates roles, database and extensions, or updates existing ones.

    `admin_dsn` is a superuser's address of an existing database (usually `postgres`). Idempotent.
    Raises psycopg.Error.
    """
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        for role in _roles(passwords):
            _role_ensure(connection, role)
        connection.execute("REVOKE portal_ops FROM portal_web")
        for member, becomes in MEMBERSHIPS:
            connection.execute(
                sql.SQL("GRANT {} TO {} WITH INHERIT FALSE, SET TRUE").format(
                    sql.Identifier(becomes), sql.Identifier(member)
                )
            )
        connection.execute("ALTER ROLE portal_operators SET role = portal_web")
        for name, limits in timeouts.items():
            _timeouts_set(connection, name, limits)
        _database_ensure(connection, database)
        system_databases_close(connection)
    with psycopg.connect(database_dsn(admin_dsn, database), autocommit=True) as connection:
        for extension in EXTENSIONS:
            connection.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS {}").format(sql.Identifier(extension)))
        connection.execute("ALTER SCHEMA public OWNER TO portal_owner")
        public_rights_revoke(connection)
        connection.execute("GRANT USAGE ON SCHEMA public TO portal_web, portal_system, portal_ops")


def database_dsn(dsn: str, database: str, *, user: str | None = None, password: str | None = None) -> str:
    """The URL `dsn` for another database and, if given, another user."""
    parts = urlsplit(dsn)
    if user is not None:
        server = parts.netloc.rpartition("@")[2]
        parts = parts._replace(netloc=f"{quote(user)}:{quote(password or '', safe='')}@{server}")
    return urlunsplit(parts._replace(path=f"/{database}"))


def _roles(passwords: Passwords) -> tuple[Role, ...]:
    known = {
        "portal_owner": passwords.owner,
        "portal_web": passwords.web,
        "portal_operators": passwords.operators,
        "portal_system": passwords.system,
    }
    return tuple(Role(name, bypass, known.get(name)) for name, bypass in BYPASSES_ROW_SECURITY.items())


def _role_ensure(connection: psycopg.Connection, role: Role) -> None:
    found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role.name]).fetchone()
    login = (
        sql.SQL("NOLOGIN PASSWORD NULL")
        if role.password is None
        else sql.SQL("LOGIN PASSWORD {}").format(sql.Literal(role.password))
    )
    connection.execute(
        sql.SQL("{} ROLE {} {} {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION").format(
            sql.SQL("ALTER" if found else "CREATE"),
            sql.Identifier(role.name),
            login,
            sql.SQL("BYPASSRLS" if role.bypass else "NOBYPASSRLS"),
        )
    )


def _timeouts_set(connection: psycopg.Connection, role: str, limits: RoleTimeouts) -> None:
    settled = {TIMEOUT_SETTINGS[kind]: f"{seconds}s" for kind, seconds in asdict(limits).items()}
    for setting, value in {**settled, **KEEPALIVES}.items():
        connection.execute(
            sql.SQL("ALTER ROLE {} SET {} = {}").format(
                sql.Identifier(role), sql.Identifier(setting), sql.Literal(value)
            )
        )


def role_timeouts_read() -> dict[str, RoleTimeouts]:
    """The limits from variables such as PORTAL_WEB_STATEMENT_SECONDS. Raises BadSetting."""
    return {
        role: RoleTimeouts(
            **{
                kind: env_int(
                    f"{role.upper()}_{kind.upper()}_SECONDS", usual, low=0, high=MAX_TIMEOUT_SECONDS
                )
                for kind, usual in asdict(limits).items()
            }
        )
        for role, limits in ROLE_TIMEOUTS.items()
    }


def _database_ensure(connection: psycopg.Connection, database: str) -> None:
    name = sql.Identifier(database)
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database])
    if not found.fetchone():
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER portal_owner").format(name))
    connection.execute(sql.SQL("ALTER DATABASE {} SET timezone TO 'UTC'").format(name))
    database_rights(connection, database)


def database_rights(connection: psycopg.Connection, database: str) -> None:
    """Lets only the portal's roles connect, and no web process create temporary tables."""
    name = sql.Identifier(database)
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))
    connection.execute(
        sql.SQL("GRANT CONNECT ON DATABASE {} TO portal_web, portal_operators, portal_system").format(name)
    )


def main() -> int:
    """Creates roles and database from the environment; returns the exit status."""
    try:
        passwords = Passwords(
            owner=env_secret("PORTAL_OWNER_PASSWORD"),
            web=env_secret("PORTAL_WEB_PASSWORD"),
            operators=env_secret("PORTAL_OPERATORS_PASSWORD"),
            system=env_secret("PORTAL_SYSTEM_PASSWORD"),
        )
        admin = env_str("DATABASE_ADMIN_URL")
        database = env_str("PORTAL_DATABASE", "portal")
        roles_ensure(admin, passwords, database=database, timeouts=role_timeouts_read())
    except (BadSetting, psycopg.Error) as error:
        sys.stderr.write(f"The database could not be created: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
