"""Options of `gpu-agent --engine …`, of which some are those of its `doctor`, too."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from agent.amd.partitions import PARTITIONS
from agent.slurm.parse import hosts_expand


def engine_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the options of engines."""
    default = environment.get
    parser.add_argument(
        "--engine",
        choices=("device", "slurm", "kubernetes"),
        default=default("GPU_AGENT_ENGINE", "device"),
        help="device: the agent gives the GPUs of this node; slurm: Slurm gives those of many nodes, a job"
        " for each booking; kubernetes: Kubernetes, a queue of Kueue or a quota for each booking",
    )
    parser.add_argument(
        "--nodes",
        type=hosts_expand,
        default=default("GPU_AGENT_NODES", ""),
        metavar="NODE[,…]",
        help="with an engine: the nodes to serve, as it names them (default: those of Slurm's reservation, or"
        " with the label gpu-portal/node in Kubernetes); --token is then NODE=TOKEN[,…]",
    )
    parser.add_argument(
        "--reservation",
        default=default("GPU_AGENT_RESERVATION", "portal"),
        metavar="NAME",
        help="with slurm: the reservation that holds the nodes for the portal (default: portal)",
    )
    parser.add_argument(
        "--partition", default=default("GPU_AGENT_PARTITION"), metavar="NAME", help="with slurm: of the jobs"
    )
    parser.add_argument(
        "--slurm-account",
        default=default("GPU_AGENT_SLURM_ACCOUNT"),
        metavar="NAME",
        help="with slurm: the account that jobs are charged to (default: the owner's)",
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
        choices=("auto", "queue", "quota"),
        default=default("GPU_AGENT_KUBERNETES_BOOKINGS", "auto"),
        help="with kubernetes: what a booking is, a queue of Kueue, or a quota and pods that hold its devices"
        " (default: a queue where Kueue is served)",
    )
    parser.add_argument(
        "--kubernetes-holders",
        default=default("GPU_AGENT_KUBERNETES_HOLDERS", "gpu-agents"),
        metavar="NAMESPACE",
        help="with kubernetes, without Kueue: of the pods that hold devices (default: gpu-agents)",
    )
    parser.add_argument(
        "--kubernetes-holder-image",
        default=default("GPU_AGENT_KUBERNETES_HOLDER_IMAGE", "registry.k8s.io/pause:3.10"),
        metavar="IMAGE",
        help="with kubernetes, without Kueue: what these pods run; it does nothing",
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
