"""The checks of `doctor --engine slurm`: what a site's Slurm must be for the portal to use it."""

import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence

from agent.doctor.checks import Check, Finding, found, said
from agent.doctor.host import HostOptions, host_checks
from agent.slurm.parse import hosts_expand
from agent.slurm.port import Reservation, SlurmPort
from agent.slurm.rest import RestAccess, SlurmRest

_OLDEST = (22, 5)
_TOKEN_ENDS_S = 86400
_LONGEST_KILL_WAIT_S = 30
_NO_MEMORY = ("", "UNLIMITED", "0")
_OF_ENGINES = frozenset(
    ("account", "state folder", "room in the state folder", "enrolment", "clock", "portal", "systemd")
)


def engine_checks(options: HostOptions) -> list[Check]:
    """Returns the checks of a host whose agent gives the GPUs of other hosts."""
    return [check for check in host_checks(options) if check.name in _OF_ENGINES]


def slurm_checks(commands: SlurmPort, nodes: str, charges: Mapping[str, str]) -> list[Check]:
    """Returns the checks; `nodes` are those to be served, empty: those of the reservation. `charges` are the
    accounts that jobs are charged to."""
    site = _Site(commands, hosts_expand(nodes), charges)
    looks: list[tuple[str, Callable[[], Finding]]] = [
        ("Slurm", site.answers),
        ("reservation", site.reservation),
        ("GPUs of Slurm", site.gres),
        ("choice of resources", site.configured(site.select)),
        ("cgroups of jobs", site.configured(site.cgroups)),
        ("memory of jobs", site.configured(site.memory)),
        ("preemption", site.configured(site.preemption)),
        ("grace of jobs", site.configured(site.kill_wait)),
        ("accounts of Slurm", site.configured(site.accounts)),
    ]
    if isinstance(commands, SlurmRest):
        looks.insert(1, ("token of slurmrestd", lambda: _token(commands.access)))
    late = said("fix_slurm_silent")
    return [Check(name, look, "Slurm", late=late) for name, look in looks]


def _token(access: RestAccess) -> Finding:
    """A token that ends takes the engine's rights with it; one of another account submits for itself only."""
    try:
        name, ends = access.claims()
    except OSError as error:
        return Finding("fail", said("slurm_silent", error=error), said("fix_slurm_token"))
    left = ends - time.time()
    seen = said("slurm_token", name=name, hours=int(left // 3600))
    return found(good=left > _TOKEN_ENDS_S, seen=seen, do=said("fix_slurm_token"), otherwise="warn")


class _Site:
    """What the commands say, asked once."""

    def __init__(self, commands: SlurmPort, nodes: Sequence[str], charges: Mapping[str, str]) -> None:
        self._commands = commands
        self._nodes = nodes
        self._charges = charges

    @functools.cached_property
    def _said(self) -> Mapping[str, str] | None:
        return self._commands.config()

    @property
    def _config(self) -> Mapping[str, str]:
        return self._said or {}

    @functools.cached_property
    def _reserved(self) -> Reservation | None:
        return self._commands.reserved()

    def configured(self, look: Callable[[], Finding]) -> Callable[[], Finding]:
        """Returns a check of the configuration, which slurmrestd does not say."""

        def looked() -> Finding:
            if self._said is None:
                return Finding("unknown", said("slurm_no_config"), said("fix_slurm_no_config"))
            return look()

        return looked

    def answers(self) -> Finding:
        try:
            version = self._commands.version()
            cluster = self._commands.cluster()
        except OSError as error:
            return Finding("fail", said("slurm_silent", error=error), said("fix_slurm_silent"))
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        seen = said("slurm_answers", version=version, cluster=cluster)
        return found(good=numbers >= _OLDEST, seen=seen, do=said("fix_slurm_old"), otherwise="fail")

    def reservation(self) -> Finding:
        name, row = self._commands.reservation, self._reserved
        if row is None:
            do = said("fix_slurm_reservation", name=name)
            return Finding("fail", said("slurm_reservation_none", name=name), do)
        missing = sorted(set(self._nodes) - set(row.nodes))
        if missing:
            facts = {"name": name, "nodes": ",".join(missing)}
            seen = said("slurm_reservation_without", **facts)
            return Finding("fail", seen, said("fix_slurm_reservation_nodes", **facts))
        return Finding("ok", said("slurm_reservation", name=name, nodes=",".join(row.nodes), who=row.who))

    def gres(self) -> Finding:
        rows = {node.name: node for node in self._commands.nodes()}
        asked = self._nodes or (self._reserved.nodes if self._reserved else ())
        counts = {name: len(rows[name].types) if name in rows else 0 for name in asked}
        seen = said("slurm_gres", gpus=", ".join(f"{name}: {count}" for name, count in counts.items()))
        good = bool(counts) and all(counts.values())
        return found(good=good, seen=seen, do=said("fix_slurm_gres"), otherwise="fail")

    def select(self) -> Finding:
        select = self._config.get("SelectType", "")
        do = said("fix_slurm_select")
        good = select == "select/cons_tres"
        return found(good=good, seen=said("slurm_select", select=select), do=do, otherwise="fail")

    def cgroups(self) -> Finding:
        task, devices = (self._config.get(name, "") for name in ("TaskPlugin", "ConstrainDevices"))
        good = "cgroup" in task and devices == "yes"
        seen = said("slurm_cgroups", task=task, devices=devices or "unset")
        return found(good=good, seen=seen, do=said("fix_slurm_cgroups"))

    def memory(self) -> Finding:
        select = self._config.get("SelectTypeParameters", "")
        memory = self._config.get("DefMemPerNode", "")
        good = "MEMORY" not in select.upper() or memory not in _NO_MEMORY
        seen = said("slurm_memory", select=select, memory=memory)
        return found(good=good, seen=seen, do=said("fix_slurm_memory"))

    def preemption(self) -> Finding:
        mode = self._config.get("PreemptMode", "OFF")
        good = mode.upper() == "OFF"
        return found(good=good, seen=said("slurm_preempts", mode=mode), do=said("fix_slurm_preempts"))

    def kill_wait(self) -> Finding:
        text = self._config.get("KillWait", "")
        seconds = int((re.findall(r"\d+", text) or ["0"])[0])
        seen = said("slurm_kill_wait", seconds=seconds)
        return found(good=seconds <= _LONGEST_KILL_WAIT_S, seen=seen, do=said("fix_slurm_kill_wait"))

    def accounts(self) -> Finding:
        """Where Slurm asks for associations, the accounts that are charged have some."""
        enforce = self._config.get("AccountingStorageEnforce", "none")
        if "associations" not in enforce:
            return Finding("ok", said("slurm_accounts", enforce=enforce))
        known = {each.account for each in self._commands.associations() or ()}
        lacking = sorted(set(self._charges.values()) - known)
        if self._charges and not lacking:
            return Finding("ok", said("slurm_accounts", enforce=enforce))
        seen = said("slurm_accounts_lacking", enforce=enforce, accounts=", ".join(lacking) or "none given")
        return Finding("warn", seen, said("fix_slurm_accounts"))
