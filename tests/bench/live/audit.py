"""The audit log at size: `python -m tests.bench.live.audit --rows 1000000 --verified 100000`.

A new database with that many entries in one tenant, of 200 people over 400 days: four in five are
about bookings and have their label. Each search asks for the first page of the log as its page
does, in this process. Before, the first `--verified` entries are sealed and verified.
"""

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from tests.bench.live.telemetry import database
from tests.bench.machine import machine, report, spread

if TYPE_CHECKING:
    from uuid import UUID

    from tenants.services.sealed_log.search import LogFilter

GOAL_SEARCH_MS, GOAL_VERIFY_SECONDS = 300, 10
NOW = datetime(2026, 11, 20, tzinfo=UTC)
PEOPLE, DAYS, ROUNDS = 200, 400, 10
_FILL = """
INSERT INTO tenants_auditentry (tenant_id, at, actor_id, action, object_kind, object_id, detail)
SELECT %(tenant)s, %(since)s + n * %(step)s * interval '1 second',
       (%(people)s::int[])[1 + (n::bigint * 7919) %% array_length(%(people)s::int[], 1)],
       CASE WHEN n %% 5 > 0 THEN 'booking.request' WHEN n %% 50 = 0 THEN 'budget.set'
            ELSE 'membership.set' END,
       CASE WHEN n %% 5 > 0 THEN 'booking' WHEN n %% 50 = 0 THEN 'budget' ELSE 'membership' END,
       gen_random_uuid()::text,
       CASE WHEN n %% 5 > 0
            THEN jsonb_build_object('label', 'BK-' || n / 3, 'project', 'folding', 'cost', n %% 97)
            ELSE jsonb_build_object('before', jsonb_build_object('role', 'viewer'),
                                    'after', jsonb_build_object('role', 'lead')) END
FROM generate_series(1, %(rows)s) n
"""


def people_make() -> tuple["UUID", list[int]]:
    """Makes a tenant and its people."""
    from tests import builders  # noqa: PLC0415 (Django is there only now)

    tenant = builders.a_tenant("helix", name="Helix Institute")
    return tenant.id, [builders.a_user(f"person-{n}").pk for n in range(PEOPLE)]


def fill(tenant_id: "UUID", people: list[int], rows: int) -> None:
    """Writes the entries."""
    from django.db import connection  # noqa: PLC0415 (Django is there only now)

    from tests.roles import as_system  # noqa: PLC0415

    values: dict[str, Any] = {
        "tenant": tenant_id,
        "rows": rows,
        "people": people,
        "since": NOW - timedelta(days=DAYS),
        "step": DAYS * 86_400 / rows,
    }
    with as_system(), connection.cursor() as cursor:
        cursor.execute(_FILL, values)


def searches_measure(tenant_id: "UUID", rows: int) -> dict[str, Any]:
    """The time of the first page of each search, and of what its page needs besides."""
    from tenants.services.sealed_log.search import LogFilter, log_kinds, seal_state  # noqa: PLC0415

    old = NOW - timedelta(days=DAYS - 2)
    wanted = {
        "all": LogFilter(),
        "person": LogFilter(actor="person-7"),
        "kind_common": LogFilter(kind="booking"),
        "kind_rare": LogFilter(kind="budget"),
        "kind_without_entries": LogFilter(kind="node"),
        "booking": LogFilter(about=f"bk-{rows // 9}"),
        "object_that_is_not_there": LogFilter(about="nothing-like-it"),
        "person_and_booking": LogFilter(actor="person-7", about=f"BK-{rows // 9}"),
        "old_days": LogFilter(since=old, until=old + timedelta(days=1)),
        "person_in_old_days": LogFilter(actor="person-7", until=old),
    }
    found: dict[str, Any] = {
        name: _timed(tenant_id, partial(_first_page, tenant_id, each)) for name, each in wanted.items()
    }
    middle = f"{(NOW - timedelta(days=DAYS // 2)).isoformat()}_{rows // 2}"
    found["page_in_the_middle"] = _timed(tenant_id, lambda: _first_page(tenant_id, LogFilter(), middle))
    found["list_of_kinds"] = _timed(tenant_id, lambda: log_kinds(tenant_id))
    found["state_of_the_seal"] = _timed(tenant_id, lambda: seal_state(tenant_id))
    return found


def _first_page(tenant_id: "UUID", wanted: "LogFilter", after: str = "") -> object:
    from tenants.services.sealed_log.search import log_entries, log_names, log_page  # noqa: PLC0415

    page = log_page(log_entries(tenant_id, wanted), after)
    return page, log_names(page.entries)


def _timed(tenant_id: "UUID", work: Callable[[], object]) -> dict[str, Any]:
    """As a web process: behind the wall. The first call is not counted."""
    from tenants.platform.wall import tenant_tx  # noqa: PLC0415

    times = []
    for _ in range(ROUNDS + 1):
        with tenant_tx(tenant_id):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
    return dict(spread(times[1:]))


def verify_measure(rows: int) -> dict[str, Any]:
    """Seals the entries and verifies the chain."""
    from tenants.services.sealed_log.chain import ENTRIES, chain_seal, chain_verify  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    with as_system():
        began, sealed = time.perf_counter(), 0
        while done := chain_seal(ENTRIES, now=NOW):
            sealed += done
        seal_s = time.perf_counter() - began
        began = time.perf_counter()
        faults = [fault for chain in chain_verify(ENTRIES) for fault in chain.faults]
        verify_s = time.perf_counter() - began
    assert (sealed, faults) == (rows, [])
    return {"rows": sealed, "seal_s": round(seal_s, 2), "verify_s": round(verify_s, 2)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Fills a new database, verifies the first entries, and searches all."""
    with database() as servers:
        tenant_id, people = people_make()
        fill(tenant_id, people, options.verified)
        verified = verify_measure(options.verified)
        began = time.perf_counter()
        fill(tenant_id, people, options.rows - options.verified)
        # As autovacuum does within minutes.
        with psycopg.connect(servers.dsn("postgres"), autocommit=True) as link:
            link.execute("VACUUM ANALYZE tenants_auditentry")
        filled = round(time.perf_counter() - began, 1)
        searches = searches_measure(tenant_id, options.rows)
    return {
        "bench": "audit",
        "rows": options.rows,
        "filled_s": filled,
        "goal_search_ms": GOAL_SEARCH_MS,
        "goal_verify_s": GOAL_VERIFY_SECONDS,
        "searches": searches,
        "verified": verified,
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.audit", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--verified", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=None, help="folder for audit.json")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    report("audit", measure(options), options.out)


if __name__ == "__main__":
    main()
