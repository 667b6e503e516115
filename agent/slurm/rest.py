"""Slurm by slurmrestd, with version 0.0.38 of its interface: Slurm 22.05 to 23.11 have it.

Requests are signed with a token of an account that may act for others (`scontrol token username=root`): a job
is submitted in the name of its owner, all else in that of the token. With `rest_auth/local` every job
would be that of slurmrestd's own account, so a token is needed over a socket, too.
"""

import base64
import dataclasses
import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.ports.commands import CommandTimeout
from agent.slurm.charges import Association
from agent.slurm.commands import CHANGE_LIMIT_S, READ_LIMIT_S, gres_text, job_environment
from agent.slurm.parse import Job, SlurmNode, gpus_of, hosts_expand, rack_of
from agent.slurm.port import Reservation, Submission

VERSION = "v0.0.38"
_HELD = 2042
"""What Slurm says of a job that was submitted held; it is none."""
_GONE = frozenset((2017, 2021))
"""No such job, or one that is over."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_TIMEOUTS = (TimeoutError, socket.timeout)


@dataclasses.dataclass(frozen=True, slots=True)
class RestAccess:
    """Where slurmrestd is, `unix:PATH` or a URL, and the file of its token. `cluster` is the name of the
    cluster, which this version does not say."""

    url: str
    token: Path
    cluster: str

    def __post_init__(self) -> None:
        """Raises ValueError."""
        parts = urlsplit(self.url)
        if parts.scheme == "http" and parts.hostname not in _LOCAL:
            raise ValueError(f"{self.url}: a token goes over https, a socket or this host only")
        if parts.scheme not in ("http", "https", "unix"):
            raise ValueError(f"{self.url}: write unix:PATH, http://localhost:PORT or https://HOST:PORT")
        if not self.cluster:
            raise ValueError("slurmrestd does not say the cluster's name: give --slurm-cluster")

    def secret(self) -> str:
        """Returns the token. Raises OSError."""
        text = self.token.read_text(encoding="ascii", errors="replace").strip()
        return text.removeprefix("SLURM_JWT=")

    def claims(self) -> tuple[str, int]:
        """Returns whose the token is, and when it ends in Unix seconds. Raises OSError."""
        try:
            body = self.secret().split(".")[1]
            found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            return str(found["sun"]), int(found["exp"])
        except (LookupError, ValueError, TypeError) as error:
            raise OSError(f"{self.token} has no token of Slurm's: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class SlurmRest:
    """See agent.slurm.port.SlurmPort."""

    access: RestAccess
    reservation: str
    partition: str | None = None

    def version(self) -> str:
        return f"slurm {self._call('GET', 'ping')['meta']['Slurm']['release']}"

    def cluster(self) -> str:
        return self.access.cluster

    def config(self) -> Mapping[str, str] | None:
        return None

    def switches(self) -> Mapping[str, str]:
        return {}

    def jobs(self) -> list[Job]:
        return [_job(row) for row in self._call("GET", "jobs")["jobs"]]

    def nodes(self) -> list[SlurmNode]:
        return [_node(row) for row in self._call("GET", "nodes")["nodes"]]

    def reserved(self) -> Reservation | None:
        rows = self._call("GET", "reservations")["reservations"]
        row = next((row for row in rows if row["name"] == self.reservation), None)
        if row is None or not row["start_time"] <= time.time() < row["end_time"]:
            return None
        who = " ".join(filter(None, (row.get("users"), row.get("groups"), row.get("accounts"))))
        return Reservation(tuple(hosts_expand(row["node_list"] or "")), who)

    def associations(self) -> frozenset[Association] | None:
        return None

    def submit(self, job: Submission, script: str) -> int:
        body: dict[str, Any] = {
            "name": job.name,
            "comment": job.comment,
            "reservation": self.reservation,
            "environment": job_environment(),
            "current_working_directory": "/",
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
            "hold": True,
            # `requeue: false` changes nothing here.
            "no_requeue": True,
            "nodes": [1, 1],
            "tasks": 1,
            "gres": gres_text(job.gpus),
            "time_limit": job.minutes,
        }
        chosen = {
            # Not in the published schema, which has no list of nodes; taken as sbatch's option.
            "nodelist": job.node,
            "exclude_nodes": ",".join(job.excluded),
            "cpus_per_task": job.cores,
            "memory_per_node": job.memory_mb,
            "partition": self.partition,
            "account": job.charged,
        }
        body |= {name: value for name, value in chosen.items() if value}
        answer = self._change("POST", "job/submit", {"script": script, "job": body}, name=job.account)
        number = answer.get("job_id")
        if not isinstance(number, int) or number <= 0:
            raise OSError(f"slurmrestd said no number of a job: {str(answer)[:200]}")
        return number

    def release(self, job: int) -> None:
        self._change("POST", f"job/{job}", {"hold": False})

    def exit_code(self, job: int) -> str:
        (row,) = self._call("GET", f"job/{job}", limit_s=CHANGE_LIMIT_S)["jobs"]
        status = int(row["exit_code"])
        return f"{status >> 8 & 0xFF}:{status & 0x7F}"

    def limit(self, job: int, minutes: int) -> None:
        self._change("POST", f"job/{job}", {"time_limit": minutes})

    def cancel(self, job: int) -> None:
        self._change("DELETE", f"job/{job}", passes=_GONE)

    def signal(self, job: int, number: int) -> None:
        # This version sends it to the script of the job alone.
        self._change("DELETE", f"job/{job}?signal={number}")

    def notify(self, job: int, text: str) -> None:
        raise OSError("slurmrestd can't write to a job")

    def _change(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        name: str = "",
        passes: frozenset[int] = frozenset(),
    ) -> dict[str, Any]:
        return self._call(method, path, body, name=name, passes=passes, limit_s=CHANGE_LIMIT_S)

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        name: str = "",
        passes: frozenset[int] = frozenset(),
        limit_s: float = READ_LIMIT_S,
    ) -> dict[str, Any]:
        """Returns the answer. Raises OSError."""
        headers = {
            "X-SLURM-USER-NAME": name or self.access.claims()[0],
            "X-SLURM-USER-TOKEN": self.access.secret(),
            "Content-Type": "application/json",
        }
        raw = None if body is None else json.dumps(body)
        connection = _connection(self.access.url, limit_s)
        try:
            connection.request(method, f"/slurm/{VERSION}/{path}", raw, headers)
            response = connection.getresponse()
            text = response.read()
        except _TIMEOUTS as error:
            raise CommandTimeout(f"slurmrestd took longer than {limit_s:g} s") from error
        except http.client.HTTPException as error:
            raise OSError(f"slurmrestd: {error}") from error
        finally:
            connection.close()
        return _answer(response.status, text, passes | {_HELD})


def _answer(status: int, text: bytes, passes: frozenset[int]) -> dict[str, Any]:
    try:
        found = json.loads(text)
        errors = [each for each in found.get("errors", ()) if _code(each) not in passes]
    except (ValueError, AttributeError) as error:
        said = text.decode(errors="replace").strip()[:200]
        raise OSError(f"slurmrestd answers {status}: {said}") from error
    if errors:
        words = (str(each.get("description") or each.get("error") or each) for each in errors)
        raise OSError(f"slurmrestd: {'; '.join(words)[:200]}")
    return dict(found)


def _code(error: Mapping[str, Any]) -> int:
    return int(error.get("error_code") or error.get("error_number") or 0)


class _Socket(http.client.HTTPConnection):
    """HTTP over a socket of this host."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(url: str, limit_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _Socket(parts.path, limit_s)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=limit_s, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=limit_s)


def _job(row: Mapping[str, Any]) -> Job:
    gpus = gpus_of(row.get("tres_per_node") or "")
    return Job(
        id=int(row["job_id"]),
        state=str(row["job_state"]),
        user=str(row.get("user_name") or row["user_id"]),
        nodes=frozenset(hosts_expand(row["nodes"] or row.get("required_nodes") or "")),
        reservation=row.get("resv_name") or "",
        gpus=len(gpus) if gpus else None,
        started=int(row["start_time"]) or None,
        # As squeue says it: the engine may have read it there before.
        submitted=datetime.fromtimestamp(row["submit_time"]).astimezone().strftime("%Y-%m-%dT%H:%M:%S"),
        reason=str(row.get("state_reason") or ""),
        name=str(row.get("name") or ""),
    )


def _node(row: Mapping[str, Any]) -> SlurmNode:
    flags = (str(each).upper() for each in row.get("state_flags", ()))
    # What is left of its cores for jobs.
    counted = dict(part.partition("=")[::2] for part in (row.get("tres") or "").split(","))
    return SlurmNode(
        name=row["name"],
        states=frozenset((str(row["state"]).upper(), *flags)),
        reason=row.get("reason") or "",
        types=gpus_of(row.get("gres") or ""),
        used=len(gpus_of(row.get("gres_used") or "")),
        cores=int(counted.get("cpu") or row["cpus"]),
        memory_mb=int(row["real_memory"]),
        boot=str(row.get("boot_time") or ""),
        rack=rack_of(row.get("features") or ""),
    )
