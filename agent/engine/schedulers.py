"""The schedulers that can give GPUs on the portal's behalf."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

import wire
from agent.hardware import EngineJobs, NodeHardware
from agent.host.machine import Host, host_read
from agent.kubernetes.api import KubernetesApi, Way, access_find
from agent.kubernetes.cluster import KubernetesCluster, served_nodes
from agent.kubernetes.cluster import site_read as kubernetes_read
from agent.kubernetes.gpu import KubernetesGpus, KubernetesPrograms, KubernetesWatch
from agent.kubernetes.holders import HeldQuotas
from agent.kubernetes.names import NODE, RACK
from agent.kubernetes.parts import BookingParts, PartSettings
from agent.kubernetes.queues import BookingQueues
from agent.kubernetes.volcano import GangQueues
from agent.ports.gpu import GpuPort, WatchPort
from agent.ports.host_cores import CoreTopology
from agent.ports.places import NoDeviceNodes
from agent.ports.programs import Programs
from agent.slurm.access import slurm_open
from agent.slurm.cluster import SlurmCluster, site_read
from agent.slurm.gpu import SlurmGpus, SlurmPrograms, SlurmWatch
from agent.slurm.jobs import BookingJobs
from agent.slurm.pool import JobPlace, OneNode, PoolSlot, SlurmPool
from agent.slurm.submission import JobSettings
from agent.state.store import Store
from wire import rack_name


class Scheduler(Protocol):
    """What an engine needs of another scheduler."""

    @property
    def kind(self) -> wire.Engine:
        """Returns what the portal calls it."""

    def nodes(self) -> list[str]:
        """Returns the nodes that the site has set aside for the portal. Raises GpuError, ValueError."""

    def hardware(self, options: argparse.Namespace) -> NodeHardware:
        """Returns one node as the hardware of an agent. Raises GpuError."""

    def doctor(self, options: argparse.Namespace) -> list[str]:
        """Returns the options that its checks need."""


def scheduler_open(options: argparse.Namespace, environment: Mapping[str, str]) -> Scheduler:
    """Returns the scheduler of `--engine`. Raises OSError, ValueError."""
    if options.engine == "slurm":
        return Slurm(options)
    return Kubernetes(options, environment)


class Slurm:
    """See Scheduler."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises OSError, ValueError."""
        slurm = slurm_open(options)
        self._cluster = SlurmCluster(slurm)
        self._site = site_read(slurm)
        self._pool = SlurmPool(self._cluster) if options.granularity == "pool" else None

    @property
    def kind(self) -> wire.Engine:
        return "slurm"

    def nodes(self) -> list[str]:
        view = self._cluster.view()
        found = sorted(view.reserved) if self._pool is None else self._pool.slots(view)
        if not found:
            reservation = self._cluster.commands.reservation
            raise ValueError(f"Slurm's reservation {reservation} holds no node: see --nodes")
        return found

    def hardware(self, options: argparse.Namespace) -> NodeHardware:
        cluster, site, place = self._cluster, self._site, self._place(options.name)
        gpus = SlurmGpus(cluster, place, site, options.gpu_models)

        def jobs(account_of: Callable[[str], str | None], store: Store) -> BookingJobs:
            settings = JobSettings(
                place=place,
                folder=options.state,
                slot_of=gpus.slot,
                account_of=account_of,
                epoch=lambda: store.epoch,
                notice=options.pause_signal,
                script_of=store.script_of,
                logs=options.slurm_logs,
                charges=options.slurm_account,
            )
            found = gpus.jobs = BookingJobs(cluster, settings)
            if self._pool is not None:
                self._pool.add(options.name, lambda: found.numbers().values())
            return found

        view = cluster.view()
        node = view.nodes[place.host(view)]
        host = dataclasses.replace(
            host_read(options.name, inspect=False),
            cores=node.cores,
            memory_mb=node.memory_mb,
            limits="counted" if site.limits_note else "enforced",
            limits_note=site.limits_note,
            engine="slurm",
            rack="" if self._pool else rack_name(node.rack or site.switches.get(node.name, "")),
            pool=self._pool.reservation if self._pool else "",
        )
        return _hardware(gpus, SlurmWatch(cluster, gpus), host, SlurmPrograms(cluster, gpus), jobs)

    def _place(self, name: str) -> JobPlace:
        if self._pool is not None:
            return PoolSlot(self._pool, name)
        return OneNode(name, self._cluster.commands.reservation)

    def doctor(self, options: argparse.Namespace) -> list[str]:
        access = {
            "slurmrestd": options.slurmrestd,
            "slurm-token": options.slurm_token,
            "slurm-cluster": options.slurm_cluster,
        }
        given = [f"--{name}={value}" for name, value in access.items() if value]
        charged = ",".join(f"{whose}={account}" for whose, account in options.slurm_account.items())
        given += [f"--slurm-account={charged}"] if charged else []
        # A slot is no node of its own: all nodes are looked at.
        given += ["--nodes="] if self._pool else []
        return ["--reservation", options.reservation, *given]


_KINDS: Mapping[Way, wire.Engine] = {"queue": "kubernetes", "volcano": "volcano", "quota": "quota"}


class Kubernetes:
    """See Scheduler."""

    def __init__(self, options: argparse.Namespace, environment: Mapping[str, str]) -> None:
        """Raises OSError, ValueError."""
        named = (options.kubernetes_api, options.kubernetes_token, options.kubernetes_ca)
        api = KubernetesApi(access_find(*named, environment))
        self._site = kubernetes_read(api, options.kubernetes_bookings)
        self._cluster = KubernetesCluster(api, way=self._site.way)

    @property
    def kind(self) -> wire.Engine:
        return _KINDS[self._site.way]

    def nodes(self) -> list[str]:
        found = served_nodes(self._cluster.view(), NODE)
        if not found:
            raise ValueError(f"no node of Kubernetes has the label {NODE}: see --nodes")
        return found

    def hardware(self, options: argparse.Namespace) -> NodeHardware:
        cluster = self._cluster
        gpus = KubernetesGpus(cluster, options.name, self._site, options.gpu_models)

        def jobs(account_of: Callable[[str], str | None], store: Store) -> BookingParts:
            settings = PartSettings(node=options.name, slot_of=gpus.slot, resource_of=gpus.resource)
            gpus.queues = self._bookings(settings, options)
            return gpus.queues

        node = cluster.view().nodes[options.name]
        host = dataclasses.replace(
            host_read(options.name, inspect=False),
            cores=int(node.host.get("cpu", 0)),
            memory_mb=int(node.host.get("memory", 0)) >> 20,
            limits_note="Kubernetes counts what pods request; one without limits may use more",
            engine=self.kind,
            rack=rack_name(node.labels.get(RACK, "")),
        )
        programs = KubernetesPrograms(cluster, gpus)
        found = _hardware(gpus, KubernetesWatch(cluster, gpus), host, programs, jobs)
        # Pods run as nobody's account.
        return dataclasses.replace(found, account_of=lambda member: member)

    def _bookings(self, settings: PartSettings, options: argparse.Namespace) -> BookingParts:
        own = options.kubernetes_holders
        match self._site.way:
            case "queue":
                return BookingQueues(self._cluster, settings)
            case "volcano":
                return GangQueues(self._cluster, settings, namespace=own)
            case "quota":
                image = options.kubernetes_holder_image
                return HeldQuotas(self._cluster, settings, namespace=own, image=image)

    def doctor(self, options: argparse.Namespace) -> list[str]:
        words = {
            name: getattr(options, f"kubernetes_{name}")
            for name in ("api", "token", "ca", "bookings", "holders", "volcano")
        }
        models = ",".join(f"{kind}={name}:{mib}" for kind, (name, mib) in options.gpu_models.items())
        access = [f"--kubernetes-{name}={value}" for name, value in words.items() if value]
        return [*access, f"--gpu-models={models}"]


def _hardware(
    gpus: GpuPort,
    watch: WatchPort,
    host: Host,
    programs: Programs,
    jobs: Callable[[Callable[[str], str | None], Store], EngineJobs],
) -> NodeHardware:
    return NodeHardware(
        gpus,
        watch,
        dataclasses.replace(host, numa=lambda gpu: None),
        NoDeviceNodes(),
        programs,
        None,
        topology=lambda near: CoreTopology(),
        network=lambda interface: None,
        jobs=jobs,
        # The work of others is never ended.
        is_only_owner=lambda: False,
    )
