"""A real Slurm on this machine: munged, slurmctld and one slurmd per node, with stand-in GPUs.

Needs Debian's packages slurmctld, slurmd, slurm-client and munge, and root: `make slurm-packages`.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from devtools.launch.embedded import free_port
from tests.servers.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun")
RESERVATION = "portal"
OWNER = "games"
"""An account of every Debian, as the owner of bookings."""
REST_ACCOUNT = "backup"
"""Whose slurmrestd is."""
OTHER = "news"
"""Another one, who submits jobs of their own."""

_CONF = """\
ClusterName=portaltest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
{rest}\
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=1
SlurmdTimeout=10
KillWait=2
InactiveLimit=0
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
TopologyPlugin=topology/tree
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MinJobAge={min_job_age}
SlurmdParameters=config_overrides
NodeName={names} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs={cpus} Boards=1 SocketsPerBoard=1 \
CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=8000 Gres=gpu:h100:{gpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


_REST = "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={root}/etc/jwt.key\n"


def missing(*, has_rest: bool = False) -> list[str]:
    """Returns the programs of Slurm that are not installed."""
    names = (*PROGRAMS, "slurmrestd") if has_rest else PROGRAMS
    return [name for name in names if shutil.which(name, path=_PATH) is None]


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def as_account(account: str) -> tuple[str, ...]:
    """Returns the words before a command that an account runs with its own groups."""
    group = pwd.getpwnam(account).pw_gid
    return ("setpriv", f"--reuid={account}", f"--regid={group}", "--init-groups")


def running(names: Sequence[str] = ("n1", "n2"), *, has_rest: bool = False) -> "Iterator[Cluster]":
    """Yields a cluster that runs, for a fixture."""
    if os.geteuid() != 0:
        pytest.fail("jobs run as other accounts: run the tests of Slurm as root", pytrace=False)
    lacking = missing(has_rest=has_rest)
    if lacking:
        pytest.fail(f"{', '.join(lacking)} are not installed: run `make slurm` as root", pytrace=False)
    # Other accounts must reach it: the folders of pytest are root's.
    with tempfile.TemporaryDirectory(prefix="gpup-slurm-") as folder:
        found = Cluster(Path(folder), names=names, has_rest=has_rest)
        try:
            found.start()
            yield found
        finally:
            found.stop()


class Cluster:
    """Nodes, each with so many stand-in GPUs and twice as many cores, at a switch of its own."""

    def __init__(
        self,
        root: Path,
        *,
        names: Sequence[str] = ("n1", "n2"),
        gpus: int = 4,
        min_job_age: int = 60,
        has_rest: bool = False,
    ) -> None:
        self.root = root
        self.names = tuple(names)
        self._gpus = gpus
        self._min_job_age = min_job_age
        self._has_rest = has_rest
        self.socket = root / "rest" / "socket"
        self.token = root / "etc" / "token"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.conf = root / "etc" / "slurm.conf"
        self.logs = root / "logs"
        """Where every account may write, as the homes of system accounts can't be."""
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Starts all daemons, and makes the reservation."""
        self._write()
        munge = self.root / "munge"
        self._start(
            "munged",
            *("munged", "--foreground", "--force", "--key-file", munge / "key"),
            *("--socket", munge / "socket", "--pid-file", munge / "pid"),
            *("--seed-file", munge / "seed", "--log-file", munge / "log"),
        )
        wait_until((munge / "socket").exists, seconds=10)
        self.controller_start()
        for name in self.names:
            self.node_start(name)
        wait_until(lambda: set(self.node_states()) == {"idle"}, seconds=30)
        self.reservation_make(self.names)
        if self._has_rest:
            self.rest_start()

    def reservation_make(self, nodes: Sequence[str]) -> None:
        """Holds these nodes for the portal."""
        self.run(
            *("scontrol", "create", "reservation", f"ReservationName={RESERVATION}", "StartTime=now"),
            *("Duration=UNLIMITED", f"Users=root,{OWNER}", f"Nodes={','.join(nodes)}"),
            "Flags=IGNORE_JOBS",
        )

    def controller_start(self) -> None:
        """Starts slurmctld and waits until it answers."""
        self._start("slurmctld", "slurmctld", "-D", "-f", self.conf)
        wait_until(lambda: self._try("scontrol", "ping").returncode == 0, seconds=30)

    def node_start(self, name: str) -> None:
        """Starts the slurmd of a node."""
        self._start(name, "slurmd", "-D", "-N", name, "-f", self.conf)

    def rest_start(self) -> None:
        """Starts slurmrestd, which does not run as root, and has a token for it."""
        self.token.write_text(self.run("scontrol", "token", "username=root", "lifespan=86400"))
        self._start(
            "slurmrestd",
            # It takes tokens if it has a variable as Debian's unit sets it.
            *(
                *as_account(REST_ACCOUNT),
                "env",
                "SLURM_JWT=daemon",
                "slurmrestd",
                "-a",
                "rest_auth/jwt",
                "-s",
                "openapi/v0.0.38",
            ),
            f"unix:{self.socket}",
        )
        wait_until(self.socket.exists, seconds=10)

    def saved(self) -> None:
        """Waits until the controller has its jobs on disk: it writes them every few seconds."""
        began, file = time.time(), self.root / "state" / "job_state"
        wait_until(lambda: file.exists() and file.stat().st_mtime > began, seconds=20)

    def kill(self, name: str) -> None:
        """Kills a daemon (`slurmctld`, or the slurmd of a node) as a loss of power would."""
        process = self._running.pop(name)
        process.kill()
        process.wait(10)

    def stop(self) -> None:
        """Ends the jobs and all daemons."""
        if "slurmctld" in self._running:
            self.empty()
        for name in reversed(list(self._running)):
            process = self._running.pop(name)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)

    def empty(self) -> None:
        """Ends all jobs and waits until they have left."""
        for account in (OWNER, OTHER):
            self._try("scancel", f"--user={account}")
        wait_until(lambda: self.jobs() == [], seconds=20)

    def run(self, *command: str | Path) -> str:
        """Returns what a command of Slurm prints; a failure is an error."""
        done = self._try(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self, states: str = "PD,R,CF,CG,S,ST") -> list[str]:
        """Returns a line per job: id, state, account, node, name."""
        text = self.run("squeue", "--noheader", "--all", f"--states={states}", "--format=%i %T %u %N %j")
        return text.splitlines()

    def node_states(self) -> list[str]:
        """Returns the states of the nodes."""
        return self.run("sinfo", "--noheader", "--Node", "--format=%T").split()

    def started(self) -> int:
        """Returns how many jobs the controller has ever started."""
        log = (self.root / "log" / "slurmctld.log").read_text()
        return log.count("Started JobId=") + log.count("Allocate JobId=")

    def limit(self, job: int) -> int:
        """Returns the time limit of a job in minutes."""
        text = self.run("squeue", "--noheader", f"--job={job}", "--Format=TimeLimit").strip()
        parts = [int(each) for each in text.replace("-", ":").split(":")]
        weights = (1 / 60, 1, 60, 1440)
        return round(sum(part * weight for part, weight in zip(reversed(parts), weights, strict=False)))

    def step(self, account: str, job: int, script: str) -> "subprocess.Popen[bytes]":
        """Starts a program in a job, as its owner does."""
        return subprocess.Popen(
            (*as_account(account), "srun", f"--jobid={job}", "--overlap", "bash", "-c", script),
            env=self.environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
        )

    def used(self, node: str) -> str:
        """Returns GresUsed of a node, as `gpu:h100:2(IDX:0-1)`."""
        text = self.run("scontrol", "--oneliner", "--details", "show", "node", node)
        return next(each.partition("=")[2] for each in text.split() if each.startswith("GresUsed="))

    def _try(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30, check=False
        )

    def _start(self, name: str, *command: str | Path) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _write(self) -> None:
        for name in ("etc", "state", "spool", "log", "run", "munge", "dev", "rest"):
            (self.root / name).mkdir(parents=True)
        (self.root / "rest").chmod(0o777)
        signing = self.root / "etc" / "jwt.key"
        signing.write_bytes(os.urandom(32))
        signing.chmod(0o600)
        self.root.chmod(0o755)
        self.logs.mkdir()
        self.logs.chmod(0o1777)
        (self.root / "munge").chmod(0o711)
        key = self.root / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        ports = [free_port() for _ in self.names]
        self.conf.write_text(
            _CONF.format(
                host=os.uname().nodename.partition(".")[0],
                port=free_port(),
                root=self.root,
                names=f"{','.join(self.names)}",
                ports=",".join(map(str, ports)),
                cpus=2 * self._gpus,
                gpus=self._gpus,
                min_job_age=self._min_job_age,
                rest=_REST.format(root=self.root) if self._has_rest else "",
            )
        )
        (self.root / "etc" / "cgroup.conf").write_text("")
        leaves = [f"SwitchName=leaf-{name} Nodes={name}" for name in self.names]
        top = f"SwitchName=top Switches={','.join(f'leaf-{name}' for name in self.names)}"
        (self.root / "etc" / "topology.conf").write_text("\n".join((*leaves, top, "")))
        for number in range(self._gpus):
            # Null devices stand in for those of GPUs.
            os.mknod(self.root / "dev" / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (self.root / "etc" / "gres.conf").write_text(
            f"NodeName={','.join(self.names)} Name=gpu Type=h100"
            f" File={self.root}/dev/gpu[0-{self._gpus - 1}]\n"
        )
