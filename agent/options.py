"""Options of `gpu-agent`. Most of them have an environment variable."""

import argparse
import re
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.engine_options import (
    amd_option,
    cores_options,
    cores_refusal,
    device_list_option,
    engine_options,
    leave_options,
    pool_refusal,
)
from agent.nvml.exporter import exporter_address
from agent.owner.mps_units import FOLDER
from agent.report.metrics import address_parse

DESCRIPTION = (
    "Enrols this node and runs its agent until it is stopped. Other commands: `gpu-agent run`"
    " starts a program of a booking, `saved` reports that a booking is saved, `doctor` checks this"
    " node, `unit` prints systemd units."
)
PERMISSIONS = ("off", "acl", "slice", "slice+acl")
_DEVICE = re.compile(r"(/dev/|char-|block-)[A-Za-z0-9_./*:-]+")


def options_parse(arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Returns the options. Arguments take precedence over GPU_AGENT_* variables."""
    parser = argparse.ArgumentParser(prog="gpu-agent", description=DESCRIPTION)
    default = environment.get
    _enrolment_options(parser, environment)
    parser.add_argument(
        "--state",
        type=Path,
        default=Path(default("GPU_AGENT_STATE", "/var/lib/gpu-agent")),
        help="folder for identity, state and bookings",
    )
    parser.add_argument(
        "--name",
        default=default("GPU_AGENT_NAME") or socket.gethostname(),
        help="name of this node (default: the host's)",
    )
    device_list_option(parser, environment)
    amd_option(parser, environment)
    cores_options(parser, environment)
    leave_options(parser, environment)
    engine_options(parser, environment)
    _booking_options(parser, environment)
    _data_options(parser, environment)
    _isolation_options(parser, environment)
    _share_options(parser, environment)
    _protection_options(parser, environment)
    _metrics_options(parser, environment)
    options = parser.parse_args(arguments)
    if refusal := cores_refusal(options) or pool_refusal(options):
        parser.error(refusal)
    if options.command and options.engine == "device":
        parser.error("enrol is for --engine: the agent of one node enrols when it starts")
    return options


def _enrolment_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    parser.add_argument(
        "command",
        nargs="?",
        choices=("enrol", "enroll"),
        help="with an engine: enrol it, report its hosts, and end",
    )
    parser.add_argument(
        "--portal",
        default=environment.get("GPU_AGENT_PORTAL"),
        help="address of the portal, as https://gpus.example.org (first start only)",
    )
    parser.add_argument(
        "--token",
        default=environment.get("GPU_AGENT_TOKEN"),
        help="one-time enrolment token (first start only; better by environment)",
    )
    parser.add_argument(
        "--enrol-again",
        action="store_true",
        help="enrol although this node was enrolled before, after it was locked out",
    )


def _booking_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    default = environment.get
    parser.add_argument(
        "--cdi",
        type=Path,
        default=default("GPU_AGENT_CDI"),
        metavar="DIR",
        help="write a CDI specification per booking to this directory, as /var/run/cdi",
    )
    parser.add_argument(
        "--hooks",
        type=Path,
        default=default("GPU_AGENT_HOOKS"),
        metavar="DIR",
        help="run the executables in DIR/start, notice, pause, resume and end for each booking,"
        " DIR/login to learn which local account a member has, and DIR/stage to fetch data sets",
    )
    parser.add_argument(
        "--notebooks",
        type=Path,
        default=default("GPU_AGENT_NOTEBOOKS"),
        metavar="FILE",
        help="offer the programs of this file as notebooks of bookings (default: none)",
    )
    parser.add_argument(
        "--pause-signal",
        type=_signal,
        default=default("GPU_AGENT_PAUSE_SIGNAL", "USR1"),
        metavar="NAME",
        help="signal for programs that handle it when a pause is announced (default: USR1), or off",
    )
    parser.add_argument(
        "--interface",
        default=default("GPU_AGENT_INTERFACE"),
        metavar="NAME",
        help="network interface to the other nodes, for NCCL and Gloo (default: that of the default route)",
    )


def _data_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    default = environment.get
    parser.add_argument(
        "--data",
        type=Path,
        default=default("GPU_AGENT_DATA"),
        metavar="DIR",
        help="list each folder in DIR as a data set that bookings may name (default: none)",
    )
    parser.add_argument(
        "--stage-limit",
        type=float,
        default=float(default("GPU_AGENT_STAGE_LIMIT", "1800")),
        metavar="SECONDS",
        help="end the program `stage` of --hooks, which fetches a data set, after so long (default: 1800)",
    )


def _isolation_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    default = environment.get
    parser.add_argument(
        "--device-permissions",
        choices=PERMISSIONS,
        default=default("GPU_AGENT_DEVICE_PERMISSIONS", "off"),
        help="acl: open the device files of a booking to its owner's account (needs setfacl);"
        " slice: let a systemd slice per booking open its devices only; slice+acl: both",
    )
    parser.add_argument(
        "--slice-devices",
        type=_devices,
        default=default("GPU_AGENT_SLICE_DEVICES", "/dev/fuse,/dev/net/tun"),
        metavar="DEVICE[,…]",
        help="with slice: further devices that every booking may open, as systemd's DeviceAllow"
        " names them, for example /dev/infiniband/rdma_cm,char-infiniband_verbs",
    )
    parser.add_argument(
        "--cgroup",
        default=default("GPU_AGENT_CGROUP", "off"),
        metavar="own|DIR|off",
        help="keep bookings to their host cores and memory by cgroup v2: in the agent's own group"
        " (a unit with Delegate=yes), or below a folder that is the agent's (default: off)",
    )


def _cores_or_off(text: str) -> int | None:
    """Raises ValueError."""
    return None if text == "off" else int(text)


def _share_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    default = environment.get
    parser.add_argument(
        "--lend-cores",
        type=_cores_or_off,
        default=default("GPU_AGENT_LEND_CORES", "off"),
        metavar="N|off",
        help="lend free host cores to bookings whose work waits for input, where their projects want that,"
        " but for N cores that stay free (default: off)",
    )
    parser.add_argument(
        "--mps",
        type=Path,
        default=Path(default("GPU_AGENT_MPS", str(FOLDER))),
        metavar="DIR",
        help="where the MPS daemon of each shared GPU listens, in a folder named as its UUID",
    )
    parser.add_argument(
        "--mps-units",
        action="store_true",
        default=default("GPU_AGENT_MPS_UNITS") == "1",
        help="start and stop the MPS daemon of each shared GPU, as gpu-mps@UUID.service",
    )


def _metrics_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    default = environment.get
    parser.add_argument(
        "--metrics",
        type=address_parse,
        default=default("GPU_AGENT_METRICS"),
        metavar="ADDRESS:PORT",
        help="serve metrics for Prometheus, for example on 127.0.0.1:9835 (default: off)",
    )
    parser.add_argument(
        "--dcgm-exporter",
        type=exporter_address,
        default=default("GPU_AGENT_DCGM_EXPORTER"),
        metavar="URL",
        help="read the time of SMs, tensor cores and memory of GPUs without GPM from the exporter of DCGM on"
        " this node, for example http://127.0.0.1:9400/metrics (default: off)",
    )


def _protection_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    default = environment.get
    parser.add_argument(
        "--never-end-unbooked",
        action="store_true",
        default=default("GPU_AGENT_NEVER_END_UNBOOKED") == "1",
        help="end no program for use without a booking, whatever the portal orders",
    )
    parser.add_argument(
        "--gpu-services",
        default=default("GPU_AGENT_GPU_SERVICES", ""),
        metavar="NAME[,…]",
        help="further services of the system's accounts, by their program's name, that may keep"
        " device files open while GPUs change hands, because they only watch them",
    )
    parser.add_argument(
        "--many-accounts",
        action="store_true",
        default=default("GPU_AGENT_MANY_ACCOUNTS") == "1",
        help="let several accounts have shares of one GPU at a time",
    )


def _devices(text: str) -> tuple[str, ...]:
    """Raises ValueError."""
    names = tuple(filter(None, text.split(",")))
    wrong = [name for name in names if not _DEVICE.fullmatch(name)]
    if wrong:
        raise ValueError(f"{wrong[0]} is no device as DeviceAllow names them")
    return names


def _signal(name: str) -> int | None:
    """Raises ValueError."""
    return None if name == "off" else int(signal.Signals[f"SIG{name.removeprefix('SIG')}"])
