"""Slurm's commands. Each raises OSError when Slurm refuses or does not answer."""

import dataclasses
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.ports.commands import CommandTimeout
from agent.slurm.charges import Association, associations_parse
from agent.slurm.parse import (
    JOBS_FORMAT,
    Job,
    SlurmNode,
    config_parse,
    fields_of,
    hosts_expand,
    jobs_parse,
    nodes_parse,
    switches_parse,
)
from agent.slurm.port import Reservation, Submission

_PASSED = ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH", "TZ")
READ_LIMIT_S = 20.0
CHANGE_LIMIT_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class SlurmCommands:
    """See agent.slurm.port.SlurmPort. `folder` has the programs, None: they are found by PATH."""

    reservation: str
    partition: str | None = None
    folder: Path | None = None

    def version(self) -> str:
        return self._run("scontrol", "--version").strip()

    def cluster(self) -> str:
        return self.config().get("ClusterName", "")

    def config(self) -> Mapping[str, str]:
        return config_parse(self._run("scontrol", "show", "config"))

    def switches(self) -> Mapping[str, str]:
        try:
            return switches_parse(self._run("scontrol", "--oneliner", "show", "topology"))
        except CommandTimeout:
            raise
        except OSError:
            # Some versions say by an error that there are none.
            return {}

    def jobs(self) -> list[Job]:
        text = self._run("squeue", "--noheader", "--all", "--states=all", f"--format={JOBS_FORMAT}")
        return list(jobs_parse(text))

    def nodes(self) -> list[SlurmNode]:
        return list(nodes_parse(self._run("scontrol", "--oneliner", "--details", "--all", "show", "node")))

    def reserved(self) -> Reservation | None:
        text = self._run("scontrol", "--oneliner", "show", "reservation")
        rows = (fields_of(line) for line in text.splitlines())
        mine = (row for row in rows if row.get("ReservationName") == self.reservation)
        row = next((row for row in mine if row.get("State") == "ACTIVE"), None)
        if row is None:
            return None
        who = [row[key] for key in ("Users", "Groups", "Accounts") if row.get(key, "(null)") != "(null)"]
        return Reservation(tuple(hosts_expand(row.get("Nodes", ""))), " ".join(who))

    def associations(self) -> frozenset[Association] | None:
        config = self.config()
        if "associations" not in config.get("AccountingStorageEnforce", ""):
            return None
        return associations_parse(
            self._run(
                *("sacctmgr", "--noheader", "--parsable2", "show", "associations"),
                *(f"cluster={config.get('ClusterName', '')}", "format=User,Account"),
            )
        )

    def submit(self, job: Submission, script: str) -> int:
        options = [
            *("--parsable", "--hold", "--no-requeue", "--nodes=1", "--ntasks=1"),
            *("--export=ALL", "--chdir=/", "--output=/dev/null", "--error=/dev/null"),
            f"--reservation={self.reservation}",
            f"--uid={job.account}",
            # Without it the job has root's group, and its owner's own can't enter it.
            f"--gid={_group_of(job.account)}",
            f"--gres={gres_text(job.gpus)}",
            f"--time={job.minutes}",
            f"--job-name={job.name}",
            f"--comment={job.comment}",
        ]
        options += [f"--nodelist={job.node}"] if job.node else []
        options += [f"--exclude={','.join(job.excluded)}"] if job.excluded else []
        if job.cores:
            options.append(f"--cpus-per-task={job.cores}")
        if job.memory_mb:
            options.append(f"--mem={job.memory_mb}M")
        if self.partition:
            options.append(f"--partition={self.partition}")
        if job.charged:
            options.append(f"--account={job.charged}")
        answer = self._run("sbatch", *options, limit_s=CHANGE_LIMIT_S, text=script)
        number = answer.strip().partition(";")[0]
        if not number.isdecimal():
            raise OSError(f"sbatch said {answer[:200]!r} and no number")
        return int(number)

    def release(self, job: int) -> None:
        self._run("scontrol", "release", str(job), limit_s=CHANGE_LIMIT_S)

    def exit_code(self, job: int) -> str:
        line = self._run("scontrol", "--oneliner", "show", "job", str(job), limit_s=CHANGE_LIMIT_S)
        return next((word[9:] for word in line.split() if word.startswith("ExitCode=")), "")

    def limit(self, job: int, minutes: int) -> None:
        self._update(job, f"TimeLimit={minutes}")

    def cancel(self, job: int) -> None:
        self._run("scancel", "--quiet", str(job), limit_s=CHANGE_LIMIT_S)

    def signal(self, job: int, number: int) -> None:
        self._run("scancel", "--batch", f"--signal={number}", str(job), limit_s=CHANGE_LIMIT_S)

    def notify(self, job: int, text: str) -> None:
        self._run("scontrol", "notify", str(job), text, limit_s=CHANGE_LIMIT_S)

    def _update(self, job: int, change: str) -> None:
        self._run("scontrol", "update", f"JobId={job}", change, limit_s=CHANGE_LIMIT_S)

    def _run(self, name: str, *arguments: str, limit_s: float = READ_LIMIT_S, text: str = "") -> str:
        command: Sequence[str | Path] = (self.folder / name if self.folder else name, *arguments)
        try:
            done = subprocess.run(  # noqa: S603 (programs of the site's Slurm, no shell)
                command,
                check=False,
                timeout=limit_s,
                input=text.encode(),
                capture_output=True,
                env=job_environment(),
            )
        except subprocess.TimeoutExpired as error:
            raise CommandTimeout(f"{name} took longer than {limit_s:g} s") from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else f"exit status {done.returncode}"
            raise OSError(f"{name}: {why[:200]}")
        return done.stdout.decode(errors="replace")


def gres_text(types: Sequence[str]) -> str:
    """Returns `gpu:h100:2,gpu:a100:1`, or `gpu:3` for GPUs without a type."""
    names = {kind: f"gpu:{kind}" if kind else "gpu" for kind in types}
    return ",".join(f"{name}:{types.count(kind)}" for kind, name in names.items())


def _group_of(account: str) -> int:
    """Raises OSError for an account that this host does not know."""
    try:
        return pwd.getpwnam(account).pw_gid
    except KeyError as error:
        raise OSError(f"no account {account} on this host") from error


def job_environment() -> dict[str, str]:
    """Returns what commands get. A job gets it, too, so the agent's own settings are not in it, and
    Slurm need not ask for the owner's by a login."""
    known = (name for name in _PASSED if name in os.environ)
    return {**{name: os.environ[name] for name in known}, "LANG": "C.UTF-8"}
