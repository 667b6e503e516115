"""The checks of `doctor` that need no GPU: rights, folders, network, programs, other owners."""

import dataclasses
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from allocation.agent.doctor.checks import Check, Finding, State, found
from allocation.agent.host.network import network_find
from allocation.agent.host.open_files import HostOpenFiles
from allocation.agent.host.other_owners import OTHER_SCHEDULERS, running
from allocation.agent.state.enrol import identity_load

_BINDING = "13.615.71"
_PTRACE = 19
_HOSTS_PIDS = "pid:[4026531836]"
_LEAST_FREE = 1 << 30
_GPU_SERVICES = ("nv-hostengine", "dcgm-exporter", "nvidia_gpu_expo", "nvidia-device-p")
_DRIVER = Path("/proc/driver/nvidia")


@dataclasses.dataclass(frozen=True, slots=True)
class HostOptions:
    """What the agent would be started with."""

    state: Path
    portal: str | None = None
    interface: str | None = None
    simulated: bool = False
    proc: Path = Path("/proc")
    driver: Path = _DRIVER
    cgroups: Path = Path("/sys/fs/cgroup")


def host_checks(options: HostOptions) -> list[Check]:
    """Returns the checks in the order of the report."""
    plain: list[tuple[str, str, Callable[[], Finding]]] = [
        ("NVML binding", "packages", _binding),
        ("account", "kernel", _account),
        ("right to see other programs' files", "kernel", lambda: _ptrace(options.proc)),
        ("process ids", "kernel", lambda: _namespace(options)),
        ("open device files", "processes", lambda: _openers(options.proc)),
        ("state folder", "file system", lambda: _folder(options.state)),
        ("room in the state folder", "file system", lambda: _room(options.state)),
        ("enrolment", "file system", lambda: _enrolled(options.state)),
        ("clock", "timedatectl", _clock),
        ("own name", "name service", _own_name),
        ("network interface", "kernel", lambda: _network(options.interface)),
        ("portal", "network", lambda: _portal(options.portal)),
        ("cgroup v2", "file system", lambda: _cgroups(options.cgroups)),
        ("systemd", "kernel", lambda: _systemd(options.proc)),
        ("other owners of the GPUs", "processes", lambda: _owners(options.proc)),
        ("services that keep GPUs open", "processes", lambda: _gpu_services(options.proc)),
        ("kernel module", "driver files", lambda: _module(options.driver)),
        ("mode of device files", "driver files", lambda: _parameters(options.driver)),
        ("MIG capability files", "driver files", lambda: _capabilities(options.driver)),
    ]
    checks = [Check(name, look, asks) for name, asks, look in plain]
    return checks + [Check(name, _program(name, why), "path") for name, why in _PROGRAMS]


_PROGRAMS = (
    ("setfacl", "--device-permissions acl needs it (package acl)"),
    ("nvidia-modprobe", "it makes device files that are missing"),
    ("nvidia-persistenced", "without persistence each first answer of the driver takes seconds"),
    ("nvidia-ctk", "containers get the driver's libraries from it (nvidia-container-toolkit)"),
    ("cuda-checkpoint", "pauses by suspend need it; without it they stop programs"),
    ("nvidia-cuda-mps-control", "shares of a GPU keep to their size only under MPS"),
)


def _program(name: str, why: str) -> Callable[[], Finding]:
    def look() -> Finding:
        path = shutil.which(name)
        return found(good=path is not None, seen=path or "is not there", do=f"install it: {why}")

    return look


def _binding() -> Finding:
    try:
        version = metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return Finding("fail", "nvidia-ml-py is not installed", f"install {_BINDING}")
    do = f"install nvidia-ml-py {_BINDING}: the agent was written for its numbers"
    return found(good=version == _BINDING, seen=f"nvidia-ml-py {version}", do=do)


def _account() -> Finding:
    uid = os.geteuid()
    return found(good=uid == 0, seen=f"account number {uid}", do="run it as root, as the agent")


def _status(proc: Path, key: str) -> str:
    text = (proc / "self" / "status").read_text()
    match = re.search(rf"^{key}:\s*(\S.*)$", text, re.MULTILINE)
    return match[1] if match else ""


def _ptrace(proc: Path) -> Finding:
    has = bool(int(_status(proc, "CapEff") or "0", 16) >> _PTRACE & 1)
    seen = "CAP_SYS_PTRACE is " + ("there" if has else "missing")
    do = "grant it: else a program that holds a GPU without a context is not seen"
    return found(good=has, seen=seen, do=do)


def _namespace(options: HostOptions) -> Finding:
    name = os.readlink(options.proc / "self" / "ns" / "pid")
    seen = "the host's" if name == _HOSTS_PIDS else f"a container's, {name}"
    do = "run it outside containers, or with --pid=host: the driver reports the host's process ids"
    # Simulated programs have no process ids of a driver.
    otherwise: State = "warn" if options.simulated else "fail"
    return found(good=name == _HOSTS_PIDS, seen=seen, do=do, otherwise=otherwise)


def _openers(proc: Path) -> Finding:
    looked = HostOpenFiles(proc).openers()
    held = {str(each) for those in looked.by_file.values() for each in those}
    seen = ", ".join(sorted(held)[:8]) or "nobody has a device file open"
    if looked.hidden:
        seen += f"; {len(looked.hidden)} programs can't be looked at"
        return Finding("warn", seen, "run it as root with CAP_SYS_PTRACE")
    do = "end what has no booking before the node is given to the portal"
    return found(good=not held, seen=seen, do=do)


def _folder(state: Path) -> Finding:
    if not state.is_dir():
        return Finding("warn", f"{state} is not there", "make it, or let the agent make it as root")
    mode = stat.S_IMODE(state.stat().st_mode)
    seen = f"{state}, mode {mode:04o}"
    if not os.access(state, os.W_OK):
        return Finding("fail", f"{seen}, can't be written", "let the agent's account write to it")
    do = "chmod 0755: people read their bookings below it, and only the agent writes"
    return found(good=mode & 0o001 != 0 and not mode & 0o022, seen=seen, do=do)


def _room(state: Path) -> Finding:
    there = next(each for each in (state, *state.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free
    do = "make room: without it no key and no state can be saved"
    return found(good=free >= _LEAST_FREE, seen=f"{free >> 20} MiB free", do=do, otherwise="fail")


def _enrolled(state: Path) -> Finding:
    try:
        identity = identity_load(state / "identity.json")
    except PermissionError:
        return Finding("unknown", "identity.json may not be read", "run it as root")
    if identity is None:
        return Finding("warn", "not enrolled", "start the agent once with --portal and --token")
    return Finding("ok", f"as {identity.node}")


def _clock() -> Finding:
    if shutil.which("timedatectl") is None:
        return Finding("unknown", "there is no timedatectl", "see that the clock is kept by NTP")
    said = _output_of("timedatectl", "show", "--property=NTPSynchronized", "--value")
    if said not in ("yes", "no"):
        return Finding("unknown", said or "timedatectl gave no answer", "see that NTP keeps it")
    seen = "kept by NTP" if said == "yes" else "not kept by NTP"
    return found(good=said == "yes", seen=seen, do="bookings end by this clock: start chrony")


def _output_of(*command: str) -> str:
    done = subprocess.run(  # noqa: S603 (the system's own program, no shell)
        command, capture_output=True, text=True, timeout=3, check=False, stdin=subprocess.DEVNULL
    )
    return (done.stdout or done.stderr).strip()[:200]


def _own_name() -> Finding:
    name = socket.gethostname()
    address = socket.gethostbyname(name)
    do = "nothing for NCCL, Gloo and torchrun under `run`; else give the name its own address"
    return found(good=not address.startswith("127."), seen=f"{name} is {address} here", do=do)


def _network(interface: str | None) -> Finding:
    network = network_find(interface)
    if network is None:
        do = "start the agent with --interface NAME: gangs need it to find each other"
        return Finding("warn", "no interface with an IPv4 address and a default route", do)
    return Finding("ok", f"{network.interface}, {network.address}")


def _portal(url: str | None) -> Finding:
    if not url:
        return Finding("unknown", "no address was given", "say --portal https://...")
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=3):
            return Finding("ok", f"{parts.hostname}:{port} answers")
    except OSError as error:
        do = "open the way from this node to it, in firewalls and name service"
        return Finding("fail", f"{parts.hostname}:{port}: {error}", do)


def _cgroups(folder: Path) -> Finding:
    listed = folder / "cgroup.controllers"
    if not listed.exists():
        return Finding("warn", "no cgroup v2 here", "boot with systemd.unified_cgroup_hierarchy=1")
    has = set(listed.read_text().split())
    missing = sorted({"cpuset", "memory"} - has)
    seen = f"without {', '.join(missing)}" if missing else "with cpuset and memory"
    return found(good=not missing, seen=seen, do="host cores and memory are counted, not enforced")


def _systemd(proc: Path) -> Finding:
    name = (proc / "1" / "comm").read_text().strip()
    do = "start the agent again when it ends by other means: leases need a living agent"
    return found(good=name == "systemd", seen=f"process 1 is {name}", do=do)


def _owners(proc: Path) -> Finding:
    there = running(proc, OTHER_SCHEDULERS)
    do = "drain and remove it: operator.md, 'With Slurm or Kubernetes'; until then"
    do += " no unbooked process is ended"
    return found(good=not there, seen=", ".join(there) or "none runs", do=do)


def _gpu_services(proc: Path) -> Finding:
    there = running(proc, _GPU_SERVICES)
    do = "stop them in hooks `release`, or MIG modes can't change: agent.md, 'When a mode changes'"
    return found(good=not there, seen=", ".join(there) or "none runs", do=do)


def _module(driver: Path) -> Finding:
    version = driver / "version"
    if not version.exists():
        do = "no GPU of NVIDIA in this machine, or its driver is not loaded: modprobe nvidia"
        return Finding("unknown", "no NVIDIA kernel module is loaded", do)
    return Finding("ok", version.read_text().splitlines()[0].strip()[:120])


def _parameters(driver: Path) -> Finding:
    path = driver / "params"
    if not path.exists():
        return Finding("unknown", "the driver reports no parameters")
    values = dict(line.partition(": ")[::2] for line in path.read_text().splitlines())
    mode, modify = int(values.get("DeviceFileMode", "438")), values.get("ModifyDeviceFiles", "1")
    seen = f"DeviceFileMode {mode:04o}, ModifyDeviceFiles {modify}"
    if modify == "0":
        do = "remove NVreg_ModifyDeviceFiles=0: no capability files are made, so no slices"
        return Finding("warn", seen, do)
    do = "everybody may open every GPU: agent.md, 'Device permissions'"
    return found(good=not mode & 0o006, seen=seen, do=do)


def _capabilities(driver: Path) -> Finding:
    if not (driver / "capabilities").is_dir():
        return Finding("unknown", "the driver has none", "none are needed without MIG")
    made = sorted(path.name for path in Path("/dev/nvidia-caps").glob("nvidia-cap*"))
    seen = f"{len(made)} in /dev/nvidia-caps"
    return found(good=bool(made), seen=seen, do="nvidia-modprobe makes them when slices are made")
