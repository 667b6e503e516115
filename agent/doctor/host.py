"""The checks of `doctor` that need no GPU: rights, folders, network, programs, other owners."""

import dataclasses
import json
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Collection, Mapping
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from agent.doctor.checks import Check, Finding, Said, State, found, said
from agent.host.machine import host_read
from agent.host.network import network_find
from agent.host.open_files import HostOpenFiles
from agent.host.other_owners import OTHER_SCHEDULERS, running
from agent.host.storage import storage_read
from agent.ports.host_cores import NUMA_NODES, core_topology_read, cores_parse, cores_text
from agent.state.enrol import identity_load

_BINDING = "13.615.71"
_PTRACE = 19
_HOSTS_PIDS = "pid:[4026531836]"
_LEAST_FREE = 1 << 30
_GPU_SERVICES = ("nv-hostengine", "dcgm-exporter", "nvidia_gpu_expo", "nvidia-device-p")
_ENGINE_FILE = "engine.json"
_DRIVER = Path("/proc/driver/nvidia")


@dataclasses.dataclass(frozen=True, slots=True)
class HostOptions:
    """What the agent would be started with. `nvidia`: the node's devices are NVIDIA's."""

    state: Path
    portal: str | None = None
    interface: str | None = None
    simulated: bool = False
    nvidia: bool = True
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
        ("storage", "file system", _storage),
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
    checks += [Check(name, _program(name, fix), "path") for name, fix in _PROGRAMS]
    return [each for each in checks if options.nvidia or each.name not in _OF_NVIDIA]


_OF_NVIDIA = frozenset(
    {
        "NVML binding",
        "kernel module",
        "mode of device files",
        "MIG capability files",
        "nvidia-modprobe",
        "nvidia-persistenced",
        "nvidia-ctk",
        "cuda-checkpoint",
        "nvidia-cuda-mps-control",
    }
)
_PROGRAMS = (
    ("setfacl", said("fix_setfacl")),
    ("nvidia-modprobe", said("fix_modprobe")),
    ("nvidia-persistenced", said("fix_persistenced")),
    ("nvidia-ctk", said("fix_ctk")),
    ("cuda-checkpoint", said("fix_checkpoint")),
    ("nvidia-cuda-mps-control", said("fix_mps")),
)


def _program(name: str, fix: Said) -> Callable[[], Finding]:
    def look() -> Finding:
        path = shutil.which(name)
        return found(
            good=path is not None,
            seen=said("program", path=path) if path else said("program_missing"),
            do=fix,
        )

    return look


def _binding() -> Finding:
    try:
        version = metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return Finding("fail", said("binding_missing"), said("fix_binding_missing", binding=_BINDING))
    do = said("fix_binding", binding=_BINDING)
    return found(good=version == _BINDING, seen=said("binding", version=version), do=do)


def _storage() -> Finding:
    storage = storage_read()
    if storage is None:
        return Finding("unknown", said("storage_unknown"))
    return Finding("ok", said("storage", local=storage.local_gb, shared=", ".join(storage.shared) or "-"))


def _account() -> Finding:
    uid = os.geteuid()
    return found(good=uid == 0, seen=said("account", uid=uid), do=said("fix_account"))


def _status(proc: Path, key: str) -> str:
    text = (proc / "self" / "status").read_text()
    match = re.search(rf"^{key}:\s*(\S.*)$", text, re.MULTILINE)
    return match[1] if match else ""


def _ptrace(proc: Path) -> Finding:
    has = bool(int(_status(proc, "CapEff") or "0", 16) >> _PTRACE & 1)
    seen = said("ptrace" if has else "no_ptrace")
    do = said("fix_ptrace")
    return found(good=has, seen=seen, do=do)


def _namespace(options: HostOptions) -> Finding:
    name = os.readlink(options.proc / "self" / "ns" / "pid")
    seen = said("pids_of_host") if name == _HOSTS_PIDS else said("pids_of_container", name=name)
    do = said("fix_pids")
    # Simulated programs have no process ids of a driver.
    otherwise: State = "warn" if options.simulated else "fail"
    return found(good=name == _HOSTS_PIDS, seen=seen, do=do, otherwise=otherwise)


def _openers(proc: Path) -> Finding:
    looked = HostOpenFiles(proc).openers()
    held = {str(each) for those in looked.by_file.values() for each in those}
    openers = ", ".join(sorted(held)[:8])
    if looked.hidden:
        code = "openers_hidden" if openers else "no_openers_hidden"
        seen = said(code, openers=openers, hidden=len(looked.hidden))
        return Finding("warn", seen, said("fix_openers_hidden"))
    seen = said("openers", openers=openers) if openers else said("no_openers")
    do = said("fix_openers")
    return found(good=not held, seen=seen, do=do)


def _folder(state: Path) -> Finding:
    if not state.is_dir():
        return Finding("warn", said("folder_missing", state=state), said("fix_folder_missing"))
    mode = stat.S_IMODE(state.stat().st_mode)
    facts = {"state": state, "mode": f"{mode:04o}"}
    if not os.access(state, os.W_OK):
        return Finding("fail", said("folder_read_only", **facts), said("fix_folder_read_only"))
    do = said("fix_folder")
    return found(good=mode & 0o001 != 0 and not mode & 0o022, seen=said("folder", **facts), do=do)


def _room(state: Path) -> Finding:
    there = next(each for each in (state, *state.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free
    do = said("fix_free")
    return found(good=free >= _LEAST_FREE, seen=said("free", mib=free >> 20), do=do, otherwise="fail")


def _enrolled(state: Path) -> Finding:
    try:
        if (state / _ENGINE_FILE).exists():
            engine = json.loads((state / _ENGINE_FILE).read_bytes())["engine"]
            return Finding("ok", said("enrolled", node=engine))
        identity = identity_load(state / "identity.json")
    except PermissionError:
        return Finding("unknown", said("identity_unreadable"), said("fix_identity"))
    if identity is None:
        return Finding("warn", said("not_enrolled"), said("fix_enrol"))
    return Finding("ok", said("enrolled", node=identity.node))


def _clock() -> Finding:
    if shutil.which("timedatectl") is None:
        return Finding("unknown", said("no_timedatectl"), said("fix_clock_unknown"))
    answer = _output_of("timedatectl", "show", "--property=NTPSynchronized", "--value")
    if answer not in ("yes", "no"):
        return Finding("unknown", _timedatectl_seen(answer), said("fix_clock_unknown"))
    seen = said("clock_ntp") if answer == "yes" else said("clock_free")
    return found(good=answer == "yes", seen=seen, do=said("fix_clock"))


def _timedatectl_seen(answer: str) -> Said:
    return said("timedatectl_error", text=answer) if answer else said("timedatectl_silent")


def _output_of(*command: str) -> str:
    done = subprocess.run(  # noqa: S603 (the system's own program, no shell)
        command, capture_output=True, text=True, timeout=3, check=False, stdin=subprocess.DEVNULL
    )
    return (done.stdout or done.stderr).strip()[:200]


def _own_name() -> Finding:
    name = socket.gethostname()
    address = socket.gethostbyname(name)
    do = said("fix_own_name")
    return found(
        good=not address.startswith("127."),
        seen=said("own_name", name=name, address=address),
        do=do,
    )


def _network(interface: str | None) -> Finding:
    network = network_find(interface)
    if network is None:
        do = said("fix_network")
        return Finding("warn", said("no_network"), do)
    return Finding("ok", said("network", interface=network.interface, address=network.address))


def _portal(url: str | None) -> Finding:
    if not url:
        return Finding("unknown", said("no_portal"), said("fix_no_portal"))
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=3):
            return Finding("ok", said("portal_answers", hostname=parts.hostname, port=port))
    except OSError as error:
        do = said("fix_portal")
        return Finding("fail", said("portal_silent", hostname=parts.hostname, port=port, error=error), do)


def _cgroups(folder: Path) -> Finding:
    listed = folder / "cgroup.controllers"
    if not listed.exists():
        return Finding("warn", said("no_cgroup"), said("fix_no_cgroup"))
    has = set(listed.read_text().split())
    missing = sorted({"cpuset", "memory"} - has)
    seen = said("cgroup_without", missing=", ".join(missing)) if missing else said("cgroup")
    return found(good=not missing, seen=seen, do=said("fix_cgroup"))


def _systemd(proc: Path) -> Finding:
    name = (proc / "1" / "comm").read_text().strip()
    do = said("fix_systemd")
    return found(good=name == "systemd", seen=said("init", name=name), do=do)


def _owners(proc: Path) -> Finding:
    there = running(proc, OTHER_SCHEDULERS)
    do = said("fix_owners")
    return found(good=not there, seen=_names(there), do=do)


def _names(there: Collection[str]) -> Said:
    return said("owners", names=", ".join(there)) if there else said("none_runs")


def _gpu_services(proc: Path) -> Finding:
    there = running(proc, _GPU_SERVICES)
    do = said("fix_gpu_services")
    return found(good=not there, seen=_names(there), do=do)


def _module(driver: Path) -> Finding:
    version = driver / "version"
    if not version.exists():
        do = said("fix_module")
        return Finding("unknown", said("module_missing"), do)
    return Finding("ok", said("module", version=version.read_text().splitlines()[0].strip()[:120]))


def _parameters(driver: Path) -> Finding:
    path = driver / "params"
    if not path.exists():
        return Finding("unknown", said("no_parameters"))
    values = dict(line.partition(": ")[::2] for line in path.read_text().splitlines())
    mode, modify = int(values.get("DeviceFileMode", "438")), values.get("ModifyDeviceFiles", "1")
    seen = said("parameters", mode=f"{mode:04o}", modify=modify)
    if modify == "0":
        do = said("fix_modify")
        return Finding("warn", seen, do)
    do = said("fix_mode_of_files")
    return found(good=not mode & 0o006, seen=seen, do=do)


def _capabilities(driver: Path) -> Finding:
    if not (driver / "capabilities").is_dir():
        return Finding("unknown", said("no_capabilities"), said("fix_no_capabilities"))
    made = sorted(path.name for path in Path("/dev/nvidia-caps").glob("nvidia-cap*"))
    seen = said("capabilities", made=len(made))
    return found(good=bool(made), seen=seen, do=said("fix_capabilities"))


_CORES = "host cores"


@dataclasses.dataclass(frozen=True, slots=True)
class CoreExamination:
    """The cores and memory that the agent would give."""

    cores: str
    memory_mb: int
    nodes: Path = NUMA_NODES

    def there(self) -> Finding:
        """Whether the host has these cores."""
        online: Mapping[int, tuple[int, ...]] = core_topology_read({}, self.nodes).cores
        known = {core for cores in online.values() for core in cores}
        missing = [core for core in cores_parse(self.cores) if core not in known]
        if not known:
            return Finding("unknown", said("cores_unknown"))
        if missing:
            return Finding("fail", said("cores_missing", cores=cores_text(missing)), said("fix_cores"))
        return Finding("ok", said("cores", cores=self.cores))

    def memory(self) -> Finding:
        """Whether the host has so much memory."""
        whole = host_read("").memory_mb
        seen = said("cores_memory", mb=self.memory_mb, whole=whole)
        return found(good=self.memory_mb < whole, seen=seen, do=said("fix_cores"), otherwise="fail")


def core_checks(cores: str, memory_mb: int) -> list[Check]:
    """Returns the checks in the order of the report."""
    examination = CoreExamination(cores, memory_mb)
    return [
        Check("host cores", examination.there, _CORES),
        Check("memory of the cores", examination.memory, _CORES),
    ]
