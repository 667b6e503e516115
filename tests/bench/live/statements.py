"""What the files of a large month take: `python -m tests.bench.live.statements --charges 100000`.

A new database with a month of that many charges in one project. The sums by all groups and each
kind of file are made in a process of their own, which reports its time and its largest memory.
"""

import argparse
import multiprocessing
import resource
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.live.money import month_fill
from tests.bench.live.telemetry import database
from tests.bench.machine import machine, report

GOAL_S, GOAL_MB = 60, 512
KINDS = ("sums", "csv", "pdf", "focus.csv", "focus.parquet")


def _make(kind: str, month: str) -> dict[str, Any]:
    """Makes one file, in a forked process that has no connection yet."""
    from django.db import connection  # noqa: PLC0415 (Django is there only now)

    from allocation.queries.bookings.money.statement_files import (  # noqa: PLC0415
        month_read,
        statement_file_make,
    )
    from allocation.queries.bookings.money.statements import (  # noqa: PLC0415
        GROUPS,
        StatementOf,
        statement_of,
    )
    from tenants.models import Tenant  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    connection.connect()
    began = time.perf_counter()
    with as_system():
        tenant = Tenant.objects.get(slug="helix")
        of = StatementOf(tenant.id, month_read(month))
        if kind == "sums":
            size = sum(statement_of(of, by).totals.lines for by in GROUPS)
        else:
            size = statement_file_make(of, tenant, kind).size
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "size": size,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Fills a new database and makes the files."""
    with database() as servers:
        from django.db import connections  # noqa: PLC0415 (Django is there only now)
        from django.utils import timezone  # noqa: PLC0415

        from billing.rules import month_of  # noqa: PLC0415

        now, began = timezone.now(), time.perf_counter()
        month = month_of((now - timedelta(days=5)).date())
        month_fill(options.charges, month, now)
        with psycopg.connect(servers.dsn("postgres"), autocommit=True) as link:
            link.execute("VACUUM ANALYZE")
        filled = round(time.perf_counter() - began, 1)
        connections.close_all()
        files = {}
        for kind in KINDS:
            with multiprocessing.get_context("fork").Pool(1) as pool:
                files[kind] = pool.apply(_make, (kind, f"{month.starts:%Y-%m}"))
    return {
        "bench": "statements",
        "charges": options.charges,
        "filled_s": filled,
        "goal_s": GOAL_S,
        "goal_mb": GOAL_MB,
        "files": files,
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.statements", description=__doc__)
    parser.add_argument("--charges", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=None, help="folder for statements.json")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    report("statements", measure(options), options.out)


if __name__ == "__main__":
    main()
