"""Advice for the next booking of a workload, each a rule on its profile. Pure.

A rule needs two runs that were measured well enough. It says what it saw in numbers, links to what to
do, and has a changed request where the request can do it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from statistics import median

from allocation.features.workloads.profiles import ENOUGH, LEAST_JUDGED, Profile
from allocation.features.workloads.runs import FinishedRun
from allocation.points import Advice
from allocation.rules.ask import MIN_DURATION_SECONDS, AskDocument
from allocation.words.amounts import class_name
from billing.rules import money_text

# Memory that a slice has to have beyond the peak of the runs, and time beyond their work.
SPARE = 1.1
FEW_CORES, ENOUGH_CORES = 6, 8
TENSOR_IDLE, TENSOR_WORKS_FROM = 5, 80
FULL_FROM, TIGHT_FROM, HALF = 0.95, 0.98, 0.5
IDLE_FROM = 0.25
# Less is no difference that somebody would plan for.
NEARER_FROM = 1.05
NOT_FULL = 85
CHEAPER = Decimal("0.9")
STEP_S = 300
MIB_PER_GB = 1024

LINKS = {
    "slice": "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
    "cores": "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    "precision": "https://docs.pytorch.org/docs/stable/amp.html",
    "bandwidth": "https://docs.pytorch.org/docs/stable/torch.compiler.html",
    "shard": "https://docs.pytorch.org/docs/stable/fsdp.html",
    "shorter": "https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",
    "fewer": "https://docs.pytorch.org/tutorials/beginner/ddp_series_multigpu.html",
    "group": "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    "batch": "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    "memory": "https://docs.pytorch.org/docs/stable/checkpoint.html",
    "class": "",
}


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice that a class offers: its memory, its part of the compute, and of the price of a GPU."""

    profile: str
    memory_mb: int
    compute: Fraction
    price: Fraction


@dataclass(frozen=True, slots=True)
class Site:
    """What a class offers: slices, the cores of its nodes for each GPU, and GPUs in an NVLink group."""

    slices: Sequence[Slice] = ()
    cores_per_gpu: int = 0
    nvlink: int = 1


Rule = Callable[[Profile, AskDocument, Site], Advice | None]


def advice_of(profiles: Sequence[Profile], ask: AskDocument, site: Site) -> list[Advice]:
    """The advice for a request of a workload: on its first class, and of other classes."""
    if ask.groups or not ask.classes:
        return []
    kind = ask.profile or ("share" if ask.share else "")
    own = next((each for each in profiles if (each.gpu_class, each.slice) == (ask.classes[0], kind)), None)
    if own is None:
        return []
    found = []
    if len(own.judged) >= LEAST_JUDGED:
        found = [said for rule in RULES if (said := rule(own, ask, site)) is not None]
    # A slice is smaller than any batch would fill.
    if any(each.code == "slice" for each in found):
        found = [each for each in found if each.code not in ("batch", "cores")]
    return [*found, *_cheaper_class(own, profiles, ask)]


def _slice(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    peak = max((run.peak_memory_mb or 0 for run in own.judged), default=0)
    use = _whole_use(own.judged)
    if ask.shape is not None or ask.count != 1 or not peak or use is None:
        return None
    fits = [
        each
        for each in site.slices
        if each.memory_mb >= SPARE * peak and each.compute >= use / 100 and each.price < 1
    ]
    if not fits:
        return None
    best = min(fits, key=lambda each: (each.price, each.profile))
    return Advice(
        "slice",
        f"Your last {len(own.judged)} runs used at most {peak / MIB_PER_GB:.0f} GB and {use:.0f} % of the"
        f" GPU: a {best.profile} slice costs {_part(best.price)}.",
        replace(ask, profile=best.profile, together="any", required=False),
        LINKS["slice"],
    )


def _cores(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    if own.verdict is None or own.verdict.kind != "input" or ask.cores >= FEW_CORES:
        return None
    wanted = min(max(ENOUGH_CORES, 2 * ask.cores), site.cores_per_gpu)
    if wanted <= ask.cores:
        return None
    had = f"on {ask.cores} cores per GPU" if ask.cores else "without cores of their own"
    return Advice(
        "cores",
        f"Input-bound {had}, at {own.busy or 0:.0f} % busy: ask for {wanted} and start as many loader"
        " processes.",
        replace(ask, cores=wanted),
        LINKS["cores"],
    )


def _precision(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    if own.tensor is None or own.busy is None or own.tensor >= TENSOR_IDLE or own.busy < TENSOR_WORKS_FROM:
        return None
    return Advice(
        "precision",
        f"Tensor cores idle ({own.tensor:.0f} %) at {own.busy:.0f} % busy: mixed precision uses them.",
        None,
        LINKS["precision"],
    )


def _bandwidth(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    if own.verdict is None or own.verdict.kind != "memory" or own.bandwidth is None:
        return None
    return Advice(
        "bandwidth",
        f"Limited by memory bandwidth ({own.bandwidth:.0f} % in use): fuse kernels, batch more or use fewer"
        " bits; a GPU with more TFLOPS and no more bandwidth is not faster.",
        None,
        LINKS["bandwidth"],
    )


def _shard(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    fullest = [min(run.fullest) for run in own.judged if len(run.fullest) >= max(2, run.gpus)]
    if ask.shape is not None or ask.count < 2 or len(fullest) < LEAST_JUDGED or median(fullest) < FULL_FROM:
        return None
    return Advice(
        "shard",
        f"Memory is full ({100 * median(fullest):.0f} %) on each of {ask.count} GPUs: shard the optimizer"
        " (ZeRO, FSDP), so that none keeps all of it.",
        None,
        LINKS["shard"],
    )


def _shorter(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    runs = [run for run in own.judged if run.idle is not None and run.worked_seconds is not None]
    if len(runs) < LEAST_JUDGED or own.idle is None or own.idle < IDLE_FROM:
        return None
    said = f"Idle for {100 * own.idle:.0f} % of the time that its GPUs were booked"
    worked = median(run.worked_seconds or 0 for run in runs)
    wanted = max(MIN_DURATION_SECONDS, STEP_S * -(-int(SPARE * worked) // STEP_S))
    is_at_end = worked < (1 - IDLE_FROM / 2) * median(run.longest for run in runs)
    if not is_at_end or wanted >= ask.duration:
        return Advice("shorter", f"{said}: release what waits, or book it apart.", None, LINKS["shorter"])
    hours = f"{worked / 3600:.1f} h"
    return Advice(
        "shorter",
        f"{said}: their work was done after {hours}. Book less, and extend if it takes longer.",
        replace(ask, duration=wanted),
        LINKS["shorter"],
    )


def _fewer(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    idle = [sum(1 for each in run.devices if each.measured and not each.works) for run in own.judged]
    never = min(idle, default=0)
    if ask.count < 2 or not 0 < never < ask.count or own.slice:
        return None
    return Advice(
        "fewer",
        f"{never} of {own.gpus} GPUs did nothing in each of the last {len(idle)} runs: book"
        f" {ask.count - never}.",
        replace(ask, count=ask.count - never),
        LINKS["fewer"],
    )


def _group(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    if own.verdict is None or own.verdict.kind != "communication":
        return None
    is_near = ask.required and ask.together in ("domain", "gpu")
    evidence = dict(own.verdict.evidence)
    over = "over PCIe" if "pcie_gib" in evidence else "across nodes" if "network_gib" in evidence else ""
    if not is_near and over and 1 < ask.count <= site.nvlink:
        return Advice(
            "group",
            f"Communication-bound {over}: ask for {ask.count} GPUs in one NVLink group.{_nearer(own, ask)}",
            replace(ask, together="domain", required=True),
            LINKS["group"],
        )
    said = "Communication-bound: overlap collectives with compute, send fewer bytes, or use fewer GPUs."
    return Advice("group", said, None, LINKS["group"])


def _nearer(own: Profile, ask: AskDocument) -> str:
    """By how much runs of the size were faster on one node than on several, if both are known."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for run in own.runs:
        if run.per_gpu_hour is not None and run.gpus == ask.count and run.devices:
            rates[len({each.node for each in run.devices}) == 1].append(run.per_gpu_hour)
    if min(map(len, rates.values())) < LEAST_JUDGED:
        return ""
    times = median(rates[True]) / median(rates[False])
    return f" On one node it was {times:.1f} times as fast." if times > NEARER_FROM else ""


def _batch(own: Profile, ask: AskDocument, site: Site) -> Advice | None:
    shares = [max(run.fullest) for run in own.judged if run.fullest]
    if len(shares) < LEAST_JUDGED:
        return None
    most = max(shares)
    if most >= TIGHT_FROM and ask.count == 1:
        said = f"Memory was full to {100 * most:.0f} %: a smaller batch or activation checkpointing is safer."
        return Advice("memory", said, None, LINKS["memory"])
    is_idle = own.verdict is not None and own.verdict.kind == "idle"
    if most > HALF or own.busy is None or own.busy >= NOT_FULL or is_idle:
        return None
    said = (
        f"{100 - 100 * most:.0f} % of the memory was never used at {own.busy:.0f} % busy: try a larger batch."
    )
    return Advice("batch", said, None, LINKS["batch"])


RULES: tuple[Rule, ...] = (_slice, _shorter, _fewer, _cores, _group, _bandwidth, _precision, _shard, _batch)


def _cheaper_class(own: Profile, profiles: Sequence[Profile], ask: AskDocument) -> Iterator[Advice]:
    """Another class on which a step costs at least a tenth less, by finished runs on both."""
    if own.rate is None or own.cost_per_unit is None or ask.shape is not None:
        return
    known = [
        each
        for each in profiles
        if each.rate is not None and each.cost_per_unit is not None and each.gpu_class not in ask.classes
    ]
    best = min(known, key=lambda each: (each.cost_per_unit, each.gpu_class), default=None)
    if best is None or best.rate is None or best.cost_per_unit is None:
        return
    if best.cost_per_unit > CHEAPER * own.cost_per_unit or best.currency != own.currency:
        return
    seconds = 60 * -(-int(ask.duration * own.rate.per_gpu_hour / best.rate.per_gpu_hour) // 60)
    costs = [
        money_text(each.cost_per_unit * 1_000, own.currency) for each in (best, own) if each.cost_per_unit
    ]
    yield Advice(
        "class",
        f"1,000 {own.rate.unit}s cost {costs[0]} on {class_name(best.gpu_class)} instead of {costs[1]} on"
        f" {class_name(own.gpu_class)}, by {best.rate.runs} and {own.rate.runs} finished runs.",
        replace(ask, classes=(best.gpu_class,), duration=seconds),
        LINKS["class"],
    )


def _whole_use(runs: Sequence[FinishedRun]) -> float | None:
    """Percent busy while runs work, the highest of them; None: not measured."""
    found = [signals.busy for run in runs if run.coverage >= ENOUGH and (signals := run.signals) is not None]
    return max(found, default=None)


def _part(price: Fraction) -> str:
    """`a seventh`, `3/7` or a percentage of the price of a whole GPU."""
    words = {2: "half as much", 3: "a third", 4: "a quarter", 7: "a seventh", 8: "an eighth"}
    if price.numerator == 1 and price.denominator in words:
        return words[price.denominator]
    return f"{float(100 * price):.0f} % of a GPU"
