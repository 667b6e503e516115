"""Why: reasons with evidence, made from the very state that decided.

Sentences name no clock time, because the reader's zone is the page's business: `frees_at` and the
numbers say when and how much. Codes and rule ids agree with `allocation.rules.rule_catalogue`
(tested).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from allocation.solver.fleet.pool import Pool
from allocation.solver.model.inputs import UNITS_PER_GPU, Shape, Together
from allocation.solver.model.plan import Reason
from allocation.solver.placement.gang import Want
from allocation.solver.quota.quota import Block
from allocation.solver.state.working import Found, Working

RULES: dict[str, tuple[str, str]] = {
    "unknown_class": ("R1", "policy"),
    "impossible_profile": ("R2", "hardware"),
    "impossible_together": ("R3", "together"),
    "not_enough_gpus": ("R12", "hardware"),
    "gpus_busy": ("R5", "together"),
    "line": ("R6", "line"),
    "stronger_claim": ("R7", "line"),
    "tenant_quota": ("R8", "quota"),
    "project_quota": ("R9", "quota"),
    "advance_window": ("R14", "policy"),
    "window_past": ("R15", "policy"),
    "deadline_passed": ("R16", "policy"),
    "deadline_unreachable": ("R17", "policy"),
    "window_busy": ("R18", "together"),
    "hardware_out": ("R19", "hardware"),
    "not_before": ("R21", "policy"),
    "no_room_in_horizon": ("R22", "together"),
    "extension_busy": ("R23", "together"),
    "hardware_lost": ("R24", "hardware"),
    "overrun": ("R25", "together"),
    "too_short": ("R28", "policy"),
    "mode_fixed": ("R30", "hardware"),
    "maintenance": ("R33", "hardware"),
    "quota_cut": ("R31", "quota"),
    "placed": ("R36", "together"),
    "ask_changed": ("R37", "policy"),
    "not_live": ("R38", "policy"),
    "guarantee_only": ("R41", "quota"),
    "lent_out": ("R42", "quota"),
    "gpu_hours": ("R43", "quota"),
    "borrowed": ("R44", "quota"),
    "makes_room": ("R45", "together"),
    "taken_back": ("R46", "quota"),
    "higher_tier": ("R47", "policy"),
    "fairer_share": ("R48", "quota"),
    "room_promised": ("R49", "line"),
    "host_busy": ("R58", "together"),
    "host_too_small": ("R59", "hardware"),
    "share_of_one": ("R60", "policy"),
    "series_conflict": ("R67", "together"),
    "class_too_slow": ("R72", "policy"),
    "laid_anew": ("R73", "together"),
    "pin_elsewhere": ("R76", "policy"),
    "pin_too_small": ("R77", "policy"),
    "pinned": ("R78", "policy"),
    "pin_out": ("R79", "hardware"),
    "none_in_service": ("R80", "hardware"),
    "moved_together": ("R81", "together"),
    "order_stale": ("R82", "policy"),
    "node_unanswering": ("R85", "hardware"),
    "suspended_there": ("R87", "hardware"),
    "mode_pinned": ("R95", "hardware"),
    "mode_change": ("R96", "hardware"),
}
"""Code -> rule id of the catalogue and which of the six checks it belongs to."""

GROUPS: dict[Together, str] = {
    "gpu": "single GPU",
    "domain": "NVLink domain",
    "node": "node",
    "rack": "rack",
    "any": "class",
}


@dataclass(frozen=True, slots=True)
class Line:
    """Who is ahead in a class: bookings and quota units."""

    bookings: int = 0
    units: int = 0

    def longer(self, units: int) -> "Line":
        """With one more booking."""
        return Line(self.bookings + 1, self.units + units)


def reason(code: str, sentence: str, frees_at: int | None = None, **numbers: int | str) -> Reason:
    """A reason of the catalogue. KeyError for a code that is not in it."""
    rule, check = RULES[code]
    return Reason(rule, code, check, sentence, tuple(sorted(numbers.items())), frees_at)


def shape(want: Want) -> str:
    """`2 h100` or `2 × 3g.40gb on h100`."""
    if want.share is not None:
        return f"{_thousandths(want.share)} of one {want.gpu_class}, shared"
    if want.profile is None:
        return f"{want.count} {want.gpu_class}"
    return f"{want.count} × {want.profile} on {want.gpu_class}"


def gpus(units: int) -> str:
    """Units as GPUs for people: `8`, `2.86`."""
    hundredths = (units * 100 + UNITS_PER_GPU // 2) // UNITS_PER_GPU
    return f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")


def placed(working: Working, found: Found) -> Reason:
    """Why a winner got what it got."""
    pool = working.pools[found.want.gpu_class]
    nodes = sorted({pool.gpus[pool.column[place.gpu]].node for place in found.places})
    return reason(
        "placed",
        f"{shape(found.want)} fit on {', '.join(nodes[:4])}{' and more' * (len(nodes) > 4)}.",
        nodes=len(nodes),
        gpus=len({place.gpu for place in found.places}),
    )


def why_never(working: Working, want: Want) -> Reason | None:
    """Why a class can never serve the want, whatever else ends; None when it can."""
    pool = working.pools.get(want.gpu_class)
    if pool is None:
        return reason("unknown_class", f"There is no GPU class {want.gpu_class} in the fleet.")
    if want.share is not None and (want.count, want.profile) != (1, None):
        return reason("share_of_one", "A share is a part of one whole GPU.", asked=want.count)
    if not any(geometry.serves(want.shape) for geometry, _ in pool.kinds):
        return reason("impossible_profile", f"{want.gpu_class} GPUs have no slice {want.profile}.")
    return (
        _why_never_cut_so(pool, want)
        or _why_never_pinned(working, want)
        or _why_never_so_many(working, want)
        or _why_never_beside(working, want)
        or _why_never_within_quota(working, want)
    )


def possible_wants(
    working: Working, wants: Iterable[Want]
) -> tuple[tuple[Want, ...], tuple[Reason, ...]]:
    """The classes that could serve the ask one day, and why the others never can."""
    able: list[Want] = []
    never: list[Reason] = []
    for want in wants:
        why = why_never(working, want)
        if why is None:
            able.append(want)
        else:
            never.append(why)
    return tuple(able), tuple(never)


def _why_never_pinned(working: Working, want: Want) -> Reason | None:
    """Nodes and GPUs that are named and are not of the class, or too few."""
    if not want.pin:
        return None
    if not working.pools[want.gpu_class].within(want.pin).any():
        sentence = f"There are no {want.gpu_class} on {want.pin_words}."
        return reason("pin_elsewhere", sentence)
    most = working.most_pinned(want)
    if most >= want.count:
        return None
    near = "" if want.level == "any" else f" in one {GROUPS[want.level]}"
    sentence = f"{want.pin_words} has room for {most} of {shape(want)}{near}."
    return reason("pin_too_small", sentence, asked=want.count, most=most)


def _why_never_cut_so(pool: Pool, want: Want) -> Reason | None:
    """GPUs that there are enough of, were they not kept in the other mode."""
    made = pool.made_for(want.shape)
    other = made & ~pool.suits(want.shape)
    is_short = pool.most(want.shape, want.level) < want.count or not pool.serves(want.shape)
    if not is_short or not other.any() or pool.most_of(made, want.shape, want.level) < want.count:
        return None
    kept = "whole GPUs only" if want.profile else "slices only"
    pinned = sum(pool.gpus[column].pinned for column in np.flatnonzero(other).tolist())
    if pinned:
        sentence = f"An operator has pinned {pinned} of {len(pool)} {want.gpu_class} to {kept}."
        return reason("mode_pinned", sentence, pinned=pinned, gpus=len(pool))
    count = int(other.sum())
    many = f"{count} of {len(pool)}" if count < len(pool) else "All"
    return reason("mode_fixed", f"{many} {want.gpu_class} GPUs are set to {kept}.")


def mode_change(gpu_class: str, count: int, seconds: int, shape: Shape) -> Reason:
    """GPUs that change between whole and slices before something can start on them."""
    gpus_ = "GPU changes" if count == 1 else "GPUs change"
    mode = "to slices" if isinstance(shape, str) else "to whole"
    sentence = f"{count} {gpu_class} {gpus_} {mode} first, which takes {seconds} s on an empty GPU."
    return reason("mode_change", sentence, gpus=count, seconds=seconds)


def _why_never_so_many(working: Working, want: Want) -> Reason | None:
    pool = working.pools[want.gpu_class]
    if want.profile is not None and want.level == "domain":
        sentence = "Slices have no NVLink: ask for one node, or for whole GPUs."
        return reason("impossible_together", sentence, asked=want.count, most=0)
    most = pool.most(want.shape, "any")
    if most < want.count:
        sentence = f"The fleet has room for {most} × {want.profile or want.gpu_class} in all."
        return reason("not_enough_gpus", sentence, asked=want.count, most=most)
    most = pool.most(want.shape, want.level)
    if most < want.count:
        sentence = f"No {GROUPS[want.level]} has room for more than {most} of {shape(want)}."
        return reason("impossible_together", sentence, asked=want.count, most=most)
    return None


def _why_never_beside(working: Working, want: Want) -> Reason | None:
    """Nodes too small for the host cores or the memory that is asked for."""
    if not any(want.of_host):
        return None
    most = working.most_beside(want)
    if most >= want.count:
        return None
    sentence = f"No node has {of_host(want)} for each of {want.count} {want.gpu_class}."
    if most and want.level == "any":
        sentence = f"The nodes have {of_host(want)} for {most} {want.gpu_class} in all."
    return reason(
        "host_too_small", sentence, cores=want.cores, memory=want.memory, most=most,
        asked=want.count,
    )  # fmt: skip


def of_host(want: Want) -> str:
    """`16 cores and 64 GiB`."""
    cores = f"{_thousandths(want.cores)} cores"
    memory = f"{_thousandths(want.memory * 1000 // 1024)} GiB"
    return " and ".join(
        text for text, wanted in ((cores, want.cores), (memory, want.memory)) if wanted
    )


def _thousandths(amount: int) -> str:
    """`0.25`, `16`."""
    whole, rest = divmod(amount, 1_000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")


def _why_never_within_quota(working: Working, want: Want) -> Reason | None:
    use = working.use(want)
    block = working.quota.never(use, want.duration)
    if block is None:
        return None
    if block.kind == "limit":
        code, words = _whose(want, block.owner)
        most, asked = gpus(block.most), gpus(use.units)
        sentence = f"{words} may use {most} {want.gpu_class} at once; this needs {asked}."
        return reason(code, sentence, owner=block.owner, limit=block.most, asked=use.units)
    return _quota_reason(working, want, block, want.duration)


def maintenance(away: int, which: str, back: int) -> Reason:
    """GPUs are not there for some of the time: `which` says of what, `back` when the last is."""
    gpus_, verb = ("GPU", "is") if away == 1 else ("GPUs", "are")
    sentence = f"{away} {gpus_} {which} {verb} away for maintenance in that time."
    return reason("maintenance", sentence, back, gpus=away)


def why_quota(working: Working, want: Want, starts: int) -> Reason | None:
    """The limit that forbids the window which begins at `starts`, with when it frees."""
    block = working.over(want, starts)
    if block is None:
        return None
    frees = working.quota.frees_at(working.use(want), (starts, starts + want.duration))
    found = _quota_reason(working, want, block, want.duration, starts)
    return replace(found, frees_at=frees)


def _quota_reason(
    working: Working, want: Want, block: Block, seconds: int, starts: int | None = None
) -> Reason:
    """What the block says; without `starts` it holds for ever."""
    asked, most, used = working.use(want).units, block.most, block.used
    code, words = _whose(want, block.owner)
    if block.kind == "limit":
        sentence = (
            f"{words} has {gpus(used)} of {gpus(most)} {want.gpu_class} in use or booked; "
            f"this needs {gpus(asked)} more."
        )
        return reason(code, sentence, owner=block.owner, used=used, limit=most, asked=asked)
    if block.kind == "guarantee":
        sentence = (
            f"A tier that is never paused can't borrow: {gpus(most - used)} of the {gpus(most)} "
            f"{want.gpu_class} guaranteed to your project are left; this needs {gpus(asked)}."
        )
        return reason("guarantee_only", sentence, used=used, guaranteed=most, asked=asked)
    if block.kind == "hours":
        counted = seconds if starts is None else _counted(block, (starts, starts + seconds))
        return _hours_reason(words, asked * counted, block)
    own = 0
    if starts is not None:
        window = (starts, starts + want.duration)
        own = asked - working.quota.borrowed(working.use(want), window)
    sentence = (
        f"{gpus(asked - own)} of the {gpus(asked)} {want.gpu_class} would have to be borrowed, "
        "and others do not lend so many."
    )
    return reason("lent_out", sentence, own=own, borrowed=asked - own, asked=asked)


def _counted(block: Block, window: tuple[int, int]) -> int:
    """Seconds of the window that the cap counts: of a period only those that lie in it."""
    cap = block.cap
    if cap is None or cap.rolling_days is not None:
        return window[1] - window[0]
    return min(window[1], cap.ends) - max(window[0], cap.starts)


def _hours_reason(words: str, asked: int, block: Block) -> Reason:
    hours = UNITS_PER_GPU * 3_600
    days = block.cap.rolling_days if block.cap else None
    period = f"in any {days} days" if days else "in the period"
    most, used, needs = block.most // hours, -(-block.used // hours), -(-asked // hours)
    sentence = (
        f"{words} may have {most:,} GPU-hours {period}; {used:,} are used or booked, "
        f"and this needs {needs:,}."
    )
    return reason("gpu_hours", sentence, owner=block.owner, limit=most, used=used, asked=needs)


def _whose(want: Want, owner: str) -> tuple[str, str]:
    """Rule and words for an owner of the want: its tenant or its project."""
    if want.owners and owner == want.owners[0]:
        return ("tenant_quota", "Your organisation")
    return ("project_quota", "Your project")


def freed_by(reasons: tuple[Reason, ...], later: Found | None) -> tuple[Reason, ...]:
    """The same reasons; room that is in the way is out of it when the next window begins."""
    if later is None:
        return reasons
    return tuple(
        replace(each, frees_at=later.starts)
        if each.check == "together" and each.frees_at is None
        else each
        for each in reasons
    )


def with_totals(reasons: tuple[Reason, ...], total: int) -> tuple[Reason, ...]:
    """The same reasons, the place in line said out of all that wait for the class."""
    if not any(each.code == "line" for each in reasons):
        return reasons
    return tuple(
        _with_numbers(each, {**dict(each.numbers), "of": total}) if each.code == "line" else each
        for each in reasons
    )


def frees(why: Reason, at: int | None) -> Reason:
    """The same reason, with when it stops being in the way."""
    return Reason(why.rule, why.code, why.check, why.sentence, why.numbers, at)


def _with_numbers(why: Reason, numbers: dict[str, int | str]) -> Reason:
    rows = tuple(sorted(numbers.items()))
    return Reason(why.rule, why.code, why.check, why.sentence, rows, why.frees_at)
