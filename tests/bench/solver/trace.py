"""The openb trace as the product sees it: tables, nodes as a fleet, tasks as asks, arrivals."""

import csv
import gzip
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from solver import Ask, Gpu, Host, Model
from solver.fleet.mig_geometry import WHOLE_SHARE

Row = dict[str, str]

PLAIN = Model("plain", 8, 7, "online", ())

_NODE = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_TASK = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_WORDS = frozenset({"sn", "model"})

ORDERS = ("shuffle", "arrival", "arrival-inflated", "sorted")


def nodes_of(folder: Path, name: str) -> list[Row]:
    """The nodes that have GPUs. SystemExit: no such table, or it is not one of nodes."""
    rows = _checked(_rows(folder, name), name, _NODE)
    found = [row for row in rows if int(row["gpu"])]
    if not found:
        raise SystemExit(f"{name}: no node has a GPU")
    return found


def pods_of(folder: Path, name: str) -> list[Row]:
    """The tasks. SystemExit: no such table, or it is not one of tasks."""
    rows = _checked(_rows(folder, name), name, _TASK)
    if not any(int(row["num_gpu"]) * int(row["gpu_milli"]) for row in rows):
        raise SystemExit(f"{name}: no task asks for a GPU")
    return rows


def _rows(folder: Path, name: str) -> list[Row]:
    packed, plain = folder / f"{name}.csv.gz", folder / f"{name}.csv"
    if packed.is_file():
        with gzip.open(packed, "rt", newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))
    if plain.is_file():
        with plain.open(newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))
    raise SystemExit(f"no such table: {plain} or {packed.name}")


def _checked(rows: list[Row], name: str, columns: Iterable[str]) -> list[Row]:
    """The rows; SystemExit names the first cell that cannot be read."""
    for line, row in enumerate(rows, start=2):
        for column in columns:
            text = row.get(column)
            if text is None:
                raise SystemExit(f"{name}, line {line}: no column {column}")
            if column not in _WORDS and not text.isdecimal():
                raise SystemExit(f"{name}, line {line}: {column} is no number: {text!r}")
    return rows


def fleet_of(nodes: list[Row]) -> tuple[tuple[Gpu, ...], tuple[Host, ...]]:
    """The nodes of the trace; the model is the class, no GPU can be sliced."""
    gpus: list[Gpu] = []
    for row in nodes:
        for index in range(int(row["gpu"])):
            gpus.append(
                Gpu(
                    id=f"{row['sn']}/{index}",
                    number=len(gpus),
                    node=row["sn"],
                    rack="r",
                    index=index,
                    gpu_class=row["model"],
                    model=PLAIN.slug,
                    domain=None,
                    usable=True,
                    mode=None,
                )
            )
    hosts = (Host(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"])) for row in nodes)
    return tuple(gpus), tuple(hosts)


def ask_of(row: Row, classes: tuple[str, ...]) -> Ask:
    """A task of the trace; one without a GPU has a count of 0, which no booking has.

    Models that the cluster does not have are left out: who names no other has no class. Parts of
    several GPUs are no share of the product's, so they come as whole ones.
    """
    count, share = int(row["num_gpu"]), int(row["gpu_milli"])
    named = (row.get("gpu_spec") or "|".join(classes)).split("|")
    each = max(count, 1)
    return Ask(
        count=count,
        classes=tuple(sorted(model for model in named if model in classes)),
        profile=None,
        together="node",
        required=True,
        share=share if count == 1 and 0 < share < WHOLE_SHARE else None,
        cores=int(row["cpu_milli"]) // each,
        memory=int(row["memory_mib"]) // each,
        any_class=True,
    )


def arrivals(pods: list[Row], capacity: int, ratio: float, order: str, seed: int) -> npt.NDArray[np.int64]:
    """The list of tasks, trimmed or drawn again until it asks for `ratio` × the capacity.

    The same numbers from the same seeds as the published simulators' protocol.
    """
    chance = np.random.default_rng(seed)
    weight = np.array([int(p["num_gpu"]) * int(p["gpu_milli"]) for p in pods], dtype=np.int64)
    if order in ("shuffle", "sorted"):
        chosen = chance.permutation(np.arange(len(pods))).tolist()
    else:
        chosen = sorted(range(len(pods)), key=lambda at: (_created(pods[at]), at))
    if order == "arrival":
        return np.array(chosen)
    most, total = ratio * capacity, int(weight.sum())
    while total > most:
        total -= int(weight[chosen.pop(int(chance.integers(len(chosen))))])
    while True:
        more = int(chance.integers(len(pods)))
        if total + weight[more] > most:
            break
        chosen.append(more)
        total += int(weight[more])
    if order == "shuffle":
        chosen = [chosen[at] for at in chance.permutation(len(chosen))]
    elif order == "sorted":
        chosen.sort(key=lambda at: (-weight[at], -int(pods[at]["cpu_milli"])))
    return np.array(chosen)


def _created(row: Row) -> int:
    text = row.get("creation_time") or ""
    if not text.isdecimal():
        raise SystemExit(f"task {row.get('name')}: creation_time is no number: {text!r}")
    return int(text)


def permuted(nodes: list[Row], seed: int) -> list[Row]:
    """The same nodes under each other's names."""
    names = [node["sn"] for node in nodes]
    random.Random(seed).shuffle(names)  # noqa: S311  a made-up order
    renamed = [{**node, "sn": name} for node, name in zip(nodes, names, strict=True)]
    return sorted(renamed, key=lambda node: node["sn"])


def twice(nodes: list[Row]) -> list[Row]:
    """Each node and another one like it."""
    return [*nodes, *({**node, "sn": f"{node['sn']}-twin"} for node in nodes)]
