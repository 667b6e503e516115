"""Commands about workloads: what finished runs of a kind of work have shown, and advice for the next."""

from decimal import Decimal
from typing import Annotated, Any

import typer

from gpu_client.api import Document
from gpu_client.output import json_print, line_print, table_print
from gpu_client.session import Json, portal
from gpu_client.words import money

WorkloadName = Annotated[
    str, typer.Option("--workload", help="A short name for the kind of work, such as protein-fold.")
]


def workloads(is_json: Json = False) -> None:
    """List the workloads of your projects, with their finished runs."""
    with portal(is_json=is_json) as client:
        rows = client.workloads()
    if is_json:
        json_print({"items": rows})
        return
    used = [{"workload": row["workload"], **each} for row in rows for each in row["projects"]]
    columns = {
        "Workload": lambda row: row["workload"],
        "Project": lambda row: row["project"],
        "Runs": lambda row: str(row["runs"]),
        "Last": lambda row: row["last"][:10],
    }
    table_print(columns, used, "No workload has finished a run.")


def workload(
    name: Annotated[str, typer.Argument(help="For example: protein-fold", show_default=False)],
    is_json: Json = False,
) -> None:
    """Show what finished runs of a workload have shown, by GPU class, and advice for the next."""
    with portal(is_json=is_json) as client:
        found = client.workload(name)
    if is_json:
        json_print(found)
        return
    columns = {
        "Project": lambda row: row["project"],
        "On": lambda row: f"{row['slice'] or row['gpus']} {row['gpu_class']}",
        "Runs": lambda row: str(row["runs"]),
        "Busy": lambda row: _percent(row["busy"]),
        "Idle": lambda row: _percent(row["idle"]),
        "Memory": lambda row: _memory(row["peak_memory_mb"]),
        "A run": lambda row: money(row["cost_per_run"], row["currency"]),
        "1,000 steps": _thousand,
        "Bottleneck": lambda row: row["bottleneck"]["kind"] if row["bottleneck"] else "–",
    }
    table_print(columns, found["profile"], "No run of it is over.")
    advice_print(found["advice"])


def advice_print(rows: list[Document]) -> None:
    """Prints advice, each with its changed request."""
    for row in rows:
        line_print(f"Advice: {row['sentence']}")
        if row["request"]:
            name = row["labels"].get("workload", "")
            line_print(f"        {row['request']}" + (f" --workload {name}" if name else ""))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def _memory(value: int | None) -> str:
    return "–" if value is None else f"{value / 1024:.1f} GiB"


def _thousand(row: dict[str, Any]) -> str:
    cost = row["cost_per_unit"]
    return "–" if cost is None else money(str(1_000 * Decimal(cost)), row["currency"])
