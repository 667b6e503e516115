"""Writes a structured request as one line that the grammar parses."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any

from allocation.rules.ask.line.hosts import USUAL
from allocation.rules.ask.words.document import AskDocument, AskGroup, Together

UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"))


def shape_text(count: int, gpu_class: str, profile: str | None, share: int | None = None) -> str:
    """`2 h100`, `1g.10gb h100`, `0.25 h100`."""
    if share is not None:
        return f"{share / 1000:g} {gpu_class}"
    number = f"{count} " if count > 1 else ""
    return f"{number}{profile} {gpu_class}" if profile else f"{number or '1 '}{gpu_class}"


def cores_text(count: int, classes: str) -> str:
    """`16 cores`, `16 cores epyc`: of a class of host cores."""
    cores = "1 core" if count == 1 else f"{count} cores"
    return cores if classes == USUAL else f"{cores} {classes}"


def window_text(shape: str, window: tuple[datetime, datetime], zone: tzinfo) -> str:
    """`2 h100 from 2026-11-24 14:00 to 18:00`, in `zone`, for the shape `2 h100`."""
    starts, ends = (moment.astimezone(zone) for moment in window)
    is_short = ends.date() == starts.date() and not (starts.fold or ends.fold)
    last = f"{ends:%H:%M}" if is_short else moment_text(ends, zone)
    return f"{shape} from {moment_text(starts, zone)} to {last}"


def moment_text(moment: datetime, zone: tzinfo) -> str:
    """`2026-11-24 14:00`, in `zone`. The second of two equal times has its offset from UTC:
    `2026-10-25T02:30+01:00`."""
    local = moment.astimezone(zone)
    return local.isoformat(timespec="minutes") if local.fold else f"{local:%Y-%m-%d %H:%M}"


def alternative_text(each: Mapping[str, Any]) -> str:
    """The shape of an alternative: `2 h100`, `2 h100 + 4 l40s`."""
    rows = each.get("groups") or [each]
    return " + ".join(
        shape_text(row["count"], row["gpu_class"], row["profile"], row.get("share")) for row in rows
    )


def host_resources_text(cores: int, memory: int) -> list[str]:
    """`16 cores`, `64 gb ram`. Zero amounts are left out."""
    return [f"{cores} cores"] * bool(cores) + [f"{memory} gb ram"] * bool(memory)


def pin_text(pin: Iterable[str]) -> list[str]:
    """`on n0003/2 or n0004`. Empty without a pin."""
    names = " or ".join(pin)
    return [f"on {names}"] if names else []


def gigabytes_text(amount: int) -> str:
    """`500 GB`, `2 TB`, of GB."""
    return f"{amount / 1_000:g} TB" if amount >= 1_000 and not amount % 100 else f"{amount} GB"


def where_text(ask: Mapping[str, Any]) -> list[str]:
    """`in basel or zurich`, `not in bern`, `local nvme`, `2 tb scratch` of a stored request."""
    zones, others = " or ".join(ask.get("zones", ())), " or ".join(ask.get("not_zones", ()))
    found = [f"in {zones}"] * bool(zones) + [f"not in {others}"] * bool(others)
    storage, scratch = ask.get("storage"), ask.get("scratch", 0)
    if storage:
        found.append("shared storage" if storage == "shared" else "local nvme")
    return [*found, f"{gigabytes_text(scratch).lower()} scratch"] if scratch else found


def pin_words(pin: Iterable[str]) -> str:
    """`n0003`, `GPU 2 of n0003 or n0004`."""
    split = (name.rpartition("/") for name in pin)
    return " or ".join(f"GPU {last} of {node}" if node else last for node, _, last in split)


def data_text(data: Iterable[str]) -> list[str]:
    """`with data coco,imagenet`. Empty without data."""
    names = ",".join(data)
    return [f"with data {names}"] if names else []


def duration_text(seconds: int) -> str:
    """`6h`, `1h30m`, `2d`, in whole minutes."""
    parts, left = [], seconds
    for size, unit in UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "1m"


def together_text(together: Together, *, required: bool) -> list[str]:
    """`same node`, `preferably same nvlink`. Empty for any distance."""
    if together == "any":
        return []
    near = "nvlink" if together == "domain" else together
    return [f"same {near}" if required else f"preferably same {near}"]


def group_text(group: AskGroup) -> str:
    """`4 l40s 16 cores`: one group of a mixed request."""
    words = [shape_text(group.count, group.gpu_class, group.profile)]
    words += host_resources_text(group.cores, group.memory)
    return " ".join([*words, *together_text(group.together, required=group.required)])


def document_text(ask: AskDocument, zone: tzinfo, *, says_end: bool = False) -> str:
    """The line that parses to this request. Times are rounded down to minutes. With `says_end` a
    fixed window has its end in place of its length."""
    classes = " or ".join(ask.classes)
    length, at = duration_text(ask.duration), ask.starts
    if says_end and at is not None:
        length, at = window_text("", (at, at + timedelta(seconds=ask.duration)), zone).strip(), None
    if ask.groups:
        parts = [" + ".join(map(group_text, ask.every_group)), length]
    else:
        shape = cores_text(ask.count, classes) if ask.host else None
        parts = [shape or shape_text(ask.count, classes, ask.profile, ask.share), length]
        parts += host_resources_text(ask.cores, ask.memory * ask.count if ask.host else ask.memory)
    for word, moment in (("at", at), ("from", ask.not_before), ("before", ask.deadline)):
        if moment is not None:
            parts.append(f"{word} {moment_text(moment, zone)}")
    is_usual = ask.host and ask.together == "node" and ask.required
    if not ask.groups and not is_usual:
        parts += together_text(ask.together, required=ask.required)
    if ask.workload is not None:
        parts.append(f"kind:{ask.workload}")
    parts += pin_text(ask.pin)
    parts += where_text(ask.to_json())
    parts += data_text(ask.data)
    if ask.most_cost is not None:
        parts.append(f"may burst up to {ask.most_cost:f}")
    return " ".join(parts)
