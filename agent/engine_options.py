"""Options of `gpu-agent --engine …`, of which some are those of its `doctor`, too."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from agent.amd.partitions import PARTITIONS
from agent.ports.host_cores import cores_parse
from agent.slurm.charges import charges_parse
from agent.slurm.parse import hosts_expand
from agent.slurm.scripts import OWNERS_FOLDER

MOST_CORES = 1 << 14
SCHEDULER_CONFIG = "volcano-system/volcano-scheduler-configmap"


def engine_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the options of engines."""
    default = environment.get
    parser.add_argument(
        "--engine",
        choices=("device", "slurm", "kubernetes"),
        default=default("GPU_AGENT_ENGINE", "device"),
        help="device: the agent gives the GPUs of this node; slurm: Slurm gives those of many nodes, a job"
        " for each booking; kubernetes: Kubernetes, a queue or a quota for each booking",
    )
    parser.add_argument(
        "--nodes",
        type=hosts_expand,
        default=default("GPU_AGENT_NODES", ""),
        metavar="NODE[,…]",
        help="with an engine: the nodes to serve, as it names them (default: those of Slurm's reservation, or"
        " with the label gpu-portal/node in Kubernetes)",
    )
    parser.add_argument(
        "--reservation",
        default=default("GPU_AGENT_RESERVATION", "portal"),
        metavar="NAME",
        help="with slurm: the reservation that holds the nodes for the portal (default: portal)",
    )
    parser.add_argument(
        "--granularity",
        choices=("node", "pool"),
        default=default("GPU_AGENT_GRANULARITY", "node"),
        help="with slurm: who chooses the node of a job: the portal, or in a pool of equal nodes, which are"
        " all of the reservation, Slurm (default: node)",
    )
    slurmrestd_options(parser, environment)
    parser.add_argument(
        "--partition", default=default("GPU_AGENT_PARTITION"), metavar="NAME", help="with slurm: of the jobs"
    )
    charges_option(parser, environment)
    parser.add_argument(
        "--slurm-logs",
        default=default("GPU_AGENT_SLURM_LOGS", OWNERS_FOLDER),
        metavar="FOLDER",
        help="with slurm: where scripts of bookings write, best on storage that nodes and this host share;"
        f" ~/ is the owner's home (default: {OWNERS_FOLDER})",
    )
    models_option(parser, environment)
    kubernetes_options(parser, environment)


def device_list_option(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the option of nodes with other accelerators than GPUs."""
    parser.add_argument(
        "--device-list",
        type=Path,
        default=environment.get("GPU_AGENT_DEVICE_LIST"),
        metavar="FILE",
        help="give the devices of this list to bookings, in place of NVIDIA's GPUs: FPGAs, NPUs and others"
        " that have only device files",
    )


def amd_option(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the option of nodes with GPUs of AMD."""
    parser.add_argument(
        "--amd",
        choices=PARTITIONS,
        default=environment.get("GPU_AGENT_AMD"),
        help="give the GPUs of AMD to bookings, in place of NVIDIA's: whole, and in slices: partitions"
        " of this kind; spx: whole only (needs --device-permissions)",
    )


def cores_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the options of work without a GPU."""
    default = environment.get
    parser.add_argument(
        "--host-cores",
        type=cores_checked,
        default=default("GPU_AGENT_HOST_CORES", ""),
        metavar="LIST",
        help="give these cores of the host, as 48-63, to bookings without a GPU, in place of GPUs",
    )
    parser.add_argument(
        "--host-memory",
        type=int,
        default=int(default("GPU_AGENT_HOST_MEMORY", "0")),
        metavar="MIB",
        help="with --host-cores: memory of the host for all of these bookings together",
    )


def leave_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the options that leave cores and memory to a second agent of the host."""
    default = environment.get
    parser.add_argument(
        "--leave-cores",
        type=cores_checked,
        default=default("GPU_AGENT_LEAVE_CORES", ""),
        metavar="LIST",
        help="give these cores of the host to no booking of GPUs: a second agent has them as --host-cores",
    )
    parser.add_argument(
        "--leave-memory",
        type=int,
        default=int(default("GPU_AGENT_LEAVE_MEMORY", "0")),
        metavar="MIB",
        help="with --leave-cores: memory of the host that goes with them",
    )


def cores_checked(text: str) -> str:
    """Returns a list of cores as it was written. Raises ValueError."""
    cores = cores_parse(text)
    if len(set(cores)) != len(cores) or any(not 0 <= core < MOST_CORES for core in cores):
        raise ValueError(f"{text!r}: write cores as 48-63,128")
    return text


def cores_refusal(options: argparse.Namespace) -> str:
    """Returns why the options of cores do not go together; empty where they do."""
    if options.engine != "device" and (options.host_cores or options.leave_cores):
        name = options.engine.capitalize()
        return f"{name} gives the cores of its nodes itself: book work without a GPU there, in {name}"
    if options.host_cores and options.host_memory <= 0:
        return "--host-cores needs --host-memory: MiB of the host for the bookings on them"
    return ""


def pool_refusal(options: argparse.Namespace) -> str:
    """Returns why the options of a pool do not go together; empty where they do."""
    if options.granularity != "pool":
        return ""
    if options.engine != "slurm":
        return "--granularity pool is for --engine slurm"
    if options.nodes:
        return "--granularity pool takes all nodes of the reservation: leave out --nodes"
    return ""


def slurmrestd_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the options that say where slurmrestd is."""
    default = environment.get
    parser.add_argument(
        "--slurmrestd",
        default=default("GPU_AGENT_SLURMRESTD"),
        metavar="URL",
        help="with slurm: ask slurmrestd in place of Slurm's commands, as unix:/run/slurmrestd.sock or"
        " http://localhost:6820",
    )
    parser.add_argument(
        "--slurm-token",
        type=Path,
        default=default("GPU_AGENT_SLURM_TOKEN"),
        metavar="FILE",
        help="with --slurmrestd: a token of root or SlurmUser, as of scontrol token; it is read each time",
    )
    parser.add_argument(
        "--slurm-cluster",
        default=default("GPU_AGENT_SLURM_CLUSTER"),
        metavar="NAME",
        help="with --slurmrestd: ClusterName of slurm.conf, which slurmrestd does not say",
    )


def charges_option(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the option that says which account jobs are charged to."""
    parser.add_argument(
        "--slurm-account",
        type=charges_parse,
        default=environment.get("GPU_AGENT_SLURM_ACCOUNT", ""),
        metavar="[ORGANISATION[/PROJECT]=]NAME[,…]",
        help="with slurm: the account that jobs are charged to, of all or by organisation and project; *"
        " stands for all others (default: the owner's own)",
    )


def models_option(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the option that names products."""
    default = environment.get
    parser.add_argument(
        "--gpu-models",
        type=models_parse,
        default=default("GPU_AGENT_GPU_MODELS", ""),
        metavar="TYPE=NAME:MIB[,…]",
        help="with an engine: product name and memory of each type of GPU in gres.conf, or of each resource"
        " or product in Kubernetes, as 'h100=NVIDIA H100 80GB HBM3:81559'; * stands for all others",
    )


def kubernetes_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the options that say where Kubernetes is."""
    default = environment.get
    parser.add_argument(
        "--kubernetes-api",
        default=default("GPU_AGENT_KUBERNETES_API"),
        metavar="URL",
        help="with kubernetes: the API server (default: that of the pod in which the engine runs)",
    )
    parser.add_argument(
        "--kubernetes-bookings",
        choices=("auto", "queue", "volcano", "quota"),
        default=default("GPU_AGENT_KUBERNETES_BOOKINGS", "auto"),
        help="with kubernetes: what a booking is, a queue of Kueue, a quota with a queue of Volcano, or a"
        " quota and pods that hold its devices (default: a queue where Kueue is served, with one of Volcano"
        " where the chart's policy for it is, else a quota)",
    )
    parser.add_argument(
        "--kubernetes-holders",
        default=default("GPU_AGENT_KUBERNETES_HOLDERS", "gpu-agents"),
        metavar="NAMESPACE",
        help="with kubernetes, without Kueue: of the pods that hold devices, or of the commands to Volcano"
        " (default: gpu-agents)",
    )
    parser.add_argument(
        "--kubernetes-holder-image",
        default=default("GPU_AGENT_KUBERNETES_HOLDER_IMAGE", "registry.k8s.io/pause:3.10"),
        metavar="IMAGE",
        help="with kubernetes, without Kueue: what these pods run; it does nothing",
    )
    parser.add_argument(
        "--kubernetes-volcano",
        default=default("GPU_AGENT_KUBERNETES_VOLCANO", ""),
        metavar="NAMESPACE/NAME",
        help="with kubernetes: the ConfigMap of Volcano's scheduler, which doctor reads if it may"
        f" (default: {SCHEDULER_CONFIG})",
    )
    for name, what in (("token", "signs in with the token"), ("ca", "trusts the certificates")):
        parser.add_argument(
            f"--kubernetes-{name}",
            type=Path,
            default=default(f"GPU_AGENT_KUBERNETES_{name.upper()}"),
            metavar="FILE",
            help=f"with kubernetes: {what} in this file (default: that of the pod's service account)",
        )


def models_parse(text: str) -> dict[str, tuple[str, int]]:
    """Returns name and memory in MiB of each type of GPU. Raises ValueError."""
    found = {}
    for part in filter(None, text.split(",")):
        kind, mark, model = part.strip().partition("=")
        name, colon, memory = model.rpartition(":")
        if not (kind and mark and name and colon and memory.isdecimal() and int(memory)):
            raise ValueError(f"{part!r}: write TYPE=NAME:MIB")
        found[kind] = (name, int(memory))
    return found
