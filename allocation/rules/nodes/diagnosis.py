"""The bottleneck of running work, from utilisation readings.

A bottleneck is a hint to the owner and never a reason to take GPUs away. Work counts as idle only
if all of the period was measured: unknown is not idle. Each has a confidence from 0 to 1: it grows
with what was measured, and with the distance from the bound of its rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["idle", "throttled", "memory", "communication", "input", "compute", "steady", "unknown"]

SHORTEST_S = 600
# The measured fraction of the period that is required: for any result, and for idle.
WATCHED, WATCHED_IDLE = 0.8, 0.95
IDLE_BELOW = 5
WORKS_FROM = 50
HELD_FROM = 0.2
BANDWIDTH_FROM = 60
TENSOR_FROM = 40
SWINGS_FROM = 40
FULL_FROM = 85
# Work with less than this, and with memory and tensor cores at less than `QUIET_BELOW`, waits for its host.
WAITS_BELOW, QUIET_BELOW = 60, 40
# Links between GPUs carry this part of their peak on average where work waits for them: communication
# that takes 40 % of a step at 60 % of the peak.
LINKS_FROM = 0.2
PCIE_FROM_GIB = 12.0
# A node of a gang receives and sends so much, each, where work waits for a network: a sixth of 25 Gbit/s.
NETWORK_FROM_GIB = 0.5
# Host cores that are so busy are what work waits for that waits for input; with less it is something else.
CPU_FULL_FROM, CPU_IDLE_BELOW = 80, 30
GIB = 1 << 20
# Without one signal that would speak against it, a bottleneck is less certain.
UNSEEN = 0.75
# NVLink of a GPU in both directions together, in GB a second, by the start of its class (NVIDIA's data
# sheets of V100, A100, H100, H200 and B200).
NVLINK_GB = {"b200": 1_800, "h200": 900, "h100": 900, "a100": 600, "v100": 300}


@dataclass(frozen=True, slots=True)
class Moment:
    """One step: total and measured seconds over all devices; utilisation (lowest, mean, highest),
    memory bandwidth and tensor core activity in percent; KiB per second over PCIe and over NVLink;
    seconds of throttling by heat or power. None: not measured."""

    seconds: int
    measured: int
    busy_min: float | None = None
    busy: float | None = None
    busy_max: float | None = None
    bandwidth: float | None = None
    tensor: float | None = None
    pcie_kb: float | None = None
    throttled: int | None = None
    nvlink_kb: float | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A bottleneck with a sentence for the owner, its evidence (numbers by name) and its confidence."""

    kind: Kind
    sentence: str
    evidence: tuple[tuple[str, float], ...] = ()
    confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Signals:
    """The means of a time: `watched` is the measured part, `top` the highest utilisation, `swing` the
    distance of its highest and lowest in a step, `held` the throttled part, `links` the part of
    NVLink's peak, `cpu` the percentage of the host's cores in use that it has, `network_gib` what each of
    its nodes receives and sends, if it has several. None: not measured."""

    watched: float
    busy: float
    top: float
    swing: float
    held: float
    bandwidth: float | None
    tensor: float | None
    pcie_gib: float | None
    links: float | None = None
    gpus: int = 1
    cpu: float | None = None
    network_gib: float | None = None


def bottleneck_of(
    moments: Sequence[Moment],
    gpus: int = 1,
    gpu_class: str = "",
    cpu: float | None = None,
    network_gib: float | None = None,
) -> Bottleneck:
    """The first bottleneck that matches, in order of certainty. `cpu`, `network_gib`: as in `Signals`."""
    asked = sum(moment.seconds for moment in moments)
    known = [moment for moment in moments if moment.measured and moment.busy is not None]
    watched = sum(moment.measured for moment in known) / asked if asked else 0.0
    if asked < SHORTEST_S or watched < WATCHED:
        return Bottleneck("unknown", "There are too few readings for a diagnosis.")
    found = _signals(known, watched, gpus, gpu_class)
    if found.top < IDLE_BELOW:
        return _idle(found, is_whole=len(known) == len(moments))
    return bottleneck_at_work(replace(found, cpu=cpu, network_gib=network_gib))


def bottleneck_at_work(found: Signals) -> Bottleneck:
    """The bottleneck of work that is not idle, in order of certainty."""
    for rule in (_throttled, _memory, _communication, _tensor, _input, _host, _busy):
        verdict = rule(found)
        if verdict is not None:
            return verdict
    return Bottleneck(
        "steady",
        f"No bottleneck found: {found.busy:.0f} % busy on average.",
        (("busy", round(found.busy, 1)),),
        _confidence(found, 0.5),
    )


def nvlink_peak_kb(gpu_class: str) -> float | None:
    """KiB per second over NVLink of a GPU of the class; None: it has none, or its peak is not known."""
    peak = next((each for start, each in NVLINK_GB.items() if gpu_class.startswith(start)), None)
    return None if peak is None else peak * 1e9 / 1024


def _confidence(found: Signals, margin: float, *unseen: float | None) -> float:
    """`margin`: how far it is beyond its bound, from 0 to 1; `unseen`: what could speak against it."""
    certain = 0.6 + 0.4 * min(max(margin, 0.0), 1.0)
    missing = sum(1 for each in unseen if each is None)
    return round(min(found.watched, 1.0) * certain * UNSEEN**missing, 2)


def _idle(found: Signals, *, is_whole: bool) -> Bottleneck:
    if not is_whole or found.watched < WATCHED_IDLE:
        return Bottleneck("unknown", "It was idle in all readings, but readings are missing.")
    return Bottleneck(
        "idle",
        f"Idle: never more than {found.top:.0f} % busy. If you are done, release the booking.",
        (("busy_max", found.top),),
        _confidence(found, 1 - found.top / IDLE_BELOW),
    )


def _throttled(found: Signals) -> Bottleneck | None:
    if found.held < HELD_FROM or found.busy < WORKS_FROM:
        return None
    return Bottleneck(
        "throttled",
        f"Throttled by heat or power for {100 * found.held:.0f} % of the time.",
        (("held", round(found.held, 3)), ("busy", round(found.busy, 1))),
        _confidence(found, (found.held - HELD_FROM) / 0.3),
    )


def _memory(found: Signals) -> Bottleneck | None:
    bandwidth = found.bandwidth
    if bandwidth is None or bandwidth < BANDWIDTH_FROM or found.busy < WORKS_FROM:
        return None
    if found.tensor is not None and found.tensor >= TENSOR_FROM:
        return None
    return Bottleneck(
        "memory",
        f"Limited by memory bandwidth: {bandwidth:.0f} % is in use. Fused kernels or lower"
        " precision help more than a faster GPU.",
        (("bandwidth", round(bandwidth, 1)), ("busy", round(found.busy, 1))),
        _confidence(found, (bandwidth - BANDWIDTH_FROM) / 20, found.tensor),
    )


def _communication(found: Signals) -> Bottleneck | None:
    """Kernels of collectives count as busy while they wait, so the links and idle tensor cores say it."""
    if found.gpus < 2 or found.busy < WORKS_FROM or (found.tensor or 0) >= TENSOR_FROM:
        return None
    if found.links is not None and found.links >= LINKS_FROM:
        words = f"{100 * found.links:.0f} % of NVLink's peak"
        evidence, margin = ("links", round(found.links, 3)), (found.links - LINKS_FROM) / 0.2
    elif found.pcie_gib is not None and found.pcie_gib >= PCIE_FROM_GIB and found.busy >= FULL_FROM:
        words = f"{found.pcie_gib:.1f} GiB/s over PCIe"
        evidence, margin = ("pcie_gib", round(found.pcie_gib, 2)), (found.pcie_gib - PCIE_FROM_GIB) / 12
    else:
        return _network(found)
    return Bottleneck(
        "communication",
        f"Waits for other GPUs: {found.gpus} GPUs use {words} each, at {found.busy:.0f} % busy.",
        (evidence, ("busy", round(found.busy, 1))),
        _confidence(found, margin, found.tensor, found.bandwidth),
    )


def _network(found: Signals) -> Bottleneck | None:
    """What is exchanged is received and sent: input that is read from a network only comes in."""
    gib = found.network_gib
    if gib is None or gib < NETWORK_FROM_GIB:
        return None
    # The speed of the network is not known.
    sure = _confidence(found, (gib - NETWORK_FROM_GIB) / 2, found.tensor, found.bandwidth)
    return Bottleneck(
        "communication",
        f"Waits for other nodes: each receives and sends {gib:.1f} GiB/s, at {found.busy:.0f} % busy.",
        (("network_gib", round(gib, 2)), ("busy", round(found.busy, 1))),
        round(UNSEEN * sure, 2),
    )


def _input(found: Signals) -> Bottleneck | None:
    if found.swing < SWINGS_FROM or found.busy >= FULL_FROM:
        return None
    over = ""
    evidence = [("swing", round(found.swing, 1)), ("busy", round(found.busy, 1))]
    if found.pcie_gib is not None:
        if found.pcie_gib < 1:
            return None
        over = f" with {found.pcie_gib:.1f} GiB/s over PCIe"
        evidence.append(("pcie_gib", round(found.pcie_gib, 2)))
    return Bottleneck(
        "input",
        f"Often waits for data: utilisation varies by {found.swing:.0f} points{over} and averages"
        f" {found.busy:.0f} %. More loader processes or local data help.{_cpu_words(found)}",
        (*evidence, *_cpu_evidence(found)),
        _confidence(found, (FULL_FROM - found.busy) / 40, found.pcie_gib),
    )


def _cpu_words(found: Signals) -> str:
    """What the use of its host cores says of work that waits for input."""
    if found.cpu is None or CPU_IDLE_BELOW <= found.cpu < CPU_FULL_FROM:
        return ""
    if found.cpu < CPU_IDLE_BELOW:
        return f" Its host cores are {found.cpu:.0f} % busy, so it is disks or the network that it waits for."
    return f" Its host cores are {found.cpu:.0f} % busy, so more of them would help."


def _cpu_evidence(found: Signals) -> tuple[tuple[str, float], ...]:
    return () if found.cpu is None else (("cpu", round(found.cpu, 1)),)


def _host(found: Signals) -> Bottleneck | None:
    """Short waits between kernels do not show as swings of readings, which are means of ten seconds."""
    quiet = [each for each in (found.bandwidth, found.tensor) if each is not None]
    if found.busy >= WAITS_BELOW or not quiet or max(quiet) >= QUIET_BELOW:
        return None
    # Full cores are what it would wait for; without them it is a guess.
    certain = 1 if found.cpu is not None and found.cpu >= CPU_FULL_FROM else UNSEEN
    sure = _confidence(found, (WAITS_BELOW - found.busy) / 40, found.bandwidth, found.tensor)
    return Bottleneck(
        "input",
        f"Waits for its host: {found.busy:.0f} % busy, with memory and tensor cores below"
        f" {max(quiet):.0f} %. More cores, loader processes or larger batches help.{_cpu_words(found)}",
        (("busy", round(found.busy, 1)), ("quiet", round(max(quiet), 1)), *_cpu_evidence(found)),
        round(certain * sure, 2),
    )


def _tensor(found: Signals) -> Bottleneck | None:
    if found.tensor is None or found.tensor < TENSOR_FROM:
        return None
    return _compute(found, (found.tensor - TENSOR_FROM) / 20)


def _busy(found: Signals) -> Bottleneck | None:
    return None if found.busy < FULL_FROM else _compute(found, (found.busy - FULL_FROM) / 30)


def _compute(found: Signals, margin: float) -> Bottleneck:
    words = f", tensor cores {found.tensor:.0f} %" if found.tensor is not None else ""
    return Bottleneck(
        "compute",
        f"Makes good use of the GPU: {found.busy:.0f} % busy{words}.",
        (("busy", round(found.busy, 1)), ("tensor", round(found.tensor or 0, 1))),
        _confidence(found, margin, found.bandwidth, found.tensor),
    )


def measured_mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of values by the seconds for which each was measured, on pages and in a diagnosis.
    None if readings of a part of the measured period would stand for all of it."""
    there = [(value, seconds) for value, seconds in values if value is not None]
    measured = sum(seconds for _, seconds in there)
    if not measured or measured < WATCHED * sum(seconds for _, seconds in values):
        return None
    return sum(value * seconds for value, seconds in there) / measured


def _signals(known: Sequence[Moment], watched: float, gpus: int, gpu_class: str) -> Signals:
    total = sum(moment.measured for moment in known)

    def mean(read: Callable[[Moment], float | None]) -> float | None:
        return measured_mean([(read(moment), moment.measured) for moment in known])

    pcie, nvlink, peak = (
        mean(lambda moment: moment.pcie_kb),
        mean(lambda moment: moment.nvlink_kb),
        nvlink_peak_kb(gpu_class),
    )
    return Signals(
        watched=watched,
        busy=mean(lambda moment: moment.busy) or 0.0,
        top=max(m.busy_max if m.busy_max is not None else m.busy or 0.0 for m in known),
        swing=mean(_swing) or 0.0,
        held=sum(moment.throttled or 0 for moment in known) / total,
        bandwidth=mean(lambda moment: moment.bandwidth),
        tensor=mean(lambda moment: moment.tensor),
        pcie_gib=None if pcie is None else pcie / GIB,
        links=None if nvlink is None or peak is None else nvlink / peak,
        gpus=gpus,
    )


def _swing(moment: Moment) -> float | None:
    if moment.busy_min is None or moment.busy_max is None:
        return None
    return moment.busy_max - moment.busy_min
