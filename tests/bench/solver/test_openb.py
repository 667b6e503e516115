"""The bench of placement: it reads what lists of tasks may hold, and moves no more than it may."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from solver.model.demand import demands_of
from tests.bench.solver import openb
from tests.bench.solver.trace import Row, arrivals, ask_of, nodes_of, pods_of

CLASSES = ("A10", "T4")


def a_node(name: str, gpus: int = 2, model: str = "T4") -> Row:
    cores = {"cpu_milli": "64000", "memory_mib": "262144"}
    return {"sn": name, **cores, "gpu": str(gpus), "model": model}


def a_task(count: int = 1, milli: int = 1_000, spec: str = "", cores: int = 4_000) -> Row:
    room = {"cpu_milli": str(cores), "memory_mib": "8192"}
    return {"name": "t", **room, "num_gpu": str(count), "gpu_milli": str(milli), "gpu_spec": spec}


def written(folder: Path, name: str, rows: Sequence[Row]) -> Path:
    with (folder / f"{name}.csv").open("w", newline="") as lines:
        table = csv.DictWriter(lines, rows[0].keys())
        table.writeheader()
        table.writerows(rows)
    return folder


def rows_of(folder: Path, *more: str) -> list[dict[str, Any]]:
    asked = openb.arguments().parse_args(["--data", str(folder), *more])
    pods, nodes = pods_of(folder, "pods"), nodes_of(folder, "nodes")
    return list(openb.product_rows(pods, nodes, asked))


@pytest.mark.parametrize(
    ("spec", "classes"),
    [
        ("", CLASSES),
        ("T4", ("T4",)),
        ("T4|A10", CLASSES),
        ("T4|H800", ("T4",)),
        ("H800", ()),
    ],
)
def test_a_task_takes_the_models_it_names_and_no_other(spec: str, classes: tuple[str]) -> None:
    assert ask_of(a_task(spec=spec), CLASSES).classes == classes


def test_a_list_without_the_column_of_models_takes_any() -> None:
    row = a_task()
    del row["gpu_spec"]
    assert ask_of(row, CLASSES).classes == CLASSES


def test_parts_of_several_gpus_come_as_whole_ones() -> None:
    ask = ask_of(a_task(4, 500, cores=8_000), CLASSES)
    assert (ask.count, ask.share, ask.cores) == (4, None, 2_000)
    assert ask_of(a_task(1, 500), CLASSES).share == 500


def test_all_kinds_of_tasks_are_placed_or_dropped(tmp_path: Path) -> None:
    tasks = [
        a_task(2),
        a_task(1, 600),
        a_task(1, 600, "H800"),
        a_task(0, 0),
        a_task(1, 400, "A10|H800"),
        a_task(16),
    ]
    written(tmp_path, "pods", tasks)
    written(tmp_path, "nodes", [a_node("n1"), a_node("n2", 2, "A10"), a_node("n3", 0, "")])
    (row,) = rows_of(tmp_path, "--ratio", "10")
    assert {"policy", "seed", "alloc_pct", "p50_ms", "p99_ms"} <= row.keys()
    assert row["nodes"] == 2
    assert 0 < row["alloc_pct"] <= 100


@pytest.mark.parametrize(
    ("name", "rows", "word"),
    [
        ("elsewhere", [a_task()], "no such table"),
        ("pods", [{**a_task(), "num_gpu": "many"}], "pods, line 2: num_gpu is no number: 'many'"),
        ("pods", [a_node("n1")], "pods, line 2: no column num_gpu"),
        ("pods", [a_task(0, 0)], "pods: no task asks for a GPU"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    tmp_path: Path, name: str, rows: list[Row], word: str
) -> None:
    written(tmp_path, name, rows)
    with pytest.raises(SystemExit, match=word) as stop:
        pods_of(tmp_path, "pods")
    assert "\n" not in str(stop.value)


def test_tasks_are_drawn_again_until_enough_is_asked_for_and_sorted_ones_come_largest_first() -> None:
    pods = [a_task(1, 300), a_task(1), a_task(4), a_task(2)]
    for order in ("shuffle", "sorted"):
        sizes = [
            int(pods[at]["num_gpu"]) * int(pods[at]["gpu_milli"])
            for at in arrivals(pods, 20_000, 1.3, order, 42).tolist()
        ]
        assert 26_000 - 4_000 < sum(sizes) <= 26_000
        assert (sizes == sorted(sizes, reverse=True)) == (order == "sorted")


class TestMoves:
    """Two tasks on each of two nodes of four GPUs, and a gang that wants a whole node."""

    single, gang = ask_of(a_task(), ("T4",)), ask_of(a_task(4), ("T4",))

    def site(self, percent: float) -> openb.Site:
        nodes = [a_node("n1", 4), a_node("n2", 4)]
        site = openb.Site(nodes, [self.single, self.gang], percent)
        assert site.decide(self.single)
        assert site.decide(self.single)
        demands = demands_of(openb.request_of(0, replace(self.single, count=2)))
        other = site.state.first_at(demands, 0)
        assert other is not None
        site.state.reserve(other)
        assert site.decide(self.single)
        assert site.decide(self.single)
        site.state.free(other)
        return site

    def singles(self, site: openb.Site) -> int:
        """How many more have room."""
        return sum(site.decide(self.single) for _ in range(8))

    def test_without_moves_the_gang_is_dropped(self) -> None:
        assert not self.site(0).decide(self.gang)

    def test_two_tasks_of_four_make_way(self) -> None:
        site = self.site(50)
        assert site.decide(self.gang)
        assert site.moves.made == 2
        assert self.singles(site) == 0

    def test_what_costs_more_moves_than_there_may_be_is_undone(self) -> None:
        site = self.site(49)
        assert not site.decide(self.gang)
        assert not site.decide(self.gang), "they were moved all the same"
        assert site.moves.made == 0
        assert self.singles(site) == 4
