"""What the ledger takes: `python -m tests.bench.live.ledger --writers 8 --seconds 10`.

A new database. Each writer holds and settles amounts in a hard budget, one statement and one commit
for each operation; 10 % of the holds are sent twice, 10 % of the settlements are. Repeated messages
count as operations, as they take the same locks. Then it measures how long a rung of a ladder takes
from the commit of a hold that crosses it to its mark, with budgets evaluated once a second.
"""

import argparse
import multiprocessing
import random
import threading
import time
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from tests.bench.live.telemetry import database
from tests.bench.machine import machine, report, spread

GOAL, RUNG_GOAL_MS = 1_500, 2_000
BUDGETS, AMOUNT, REPEATED = 50, 10**6, 0.1
CROSSINGS = 20

_HOLD = """
INSERT INTO billing_transfer (id, tenant_id, kind, debit_id, credit_id, amount, reference, day, at,
                              note)
SELECT %(id)s, tenant_id, 'hold', %(budget)s, %(spend)s, %(amount)s, %(reference)s, %(day)s, %(at)s,
       ''
FROM billing_account WHERE id = %(budget)s ON CONFLICT DO NOTHING
"""
_SETTLE = """
INSERT INTO billing_transfer (id, tenant_id, kind, debit_id, credit_id, amount, hold_id, reference,
                              day, at, note)
SELECT gen_random_uuid(), tenant_id, 'settle', debit_id, credit_id, amount, id, reference, day, at,
       ''
FROM billing_transfer WHERE id = %(id)s ON CONFLICT DO NOTHING
"""


def _write(dsn: str, accounts: list[UUID], spend: UUID, at: datetime, until: float) -> list[int]:
    """One writer: counts operations, repeated holds, repeated settlements and refusals."""
    draw, counts = random.Random(), [0, 0, 0, 0]  # noqa: S311 (no secret)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=1) as link:
        while time.time() < until:
            key = {"id": uuid4()}
            facts = key | {
                "budget": draw.choice(accounts),
                "spend": spend,
                "reference": uuid4(),
                "amount": Decimal(draw.randint(1, 10**6)) / 1000,
                "day": at.date(),
                "at": at,
            }
            for text, values, repeated in ((_HOLD, facts, 1), (_SETTLE, key, 2)):
                again = draw.random() < REPEATED
                for _ in range(1 + again):
                    try:
                        link.execute(text, values)
                    except psycopg.errors.CheckViolation:
                        counts[3] += 1
                    counts[0] += 1
                counts[repeated] += again
    return counts


def _ledger(dsn: str, writers: int, seconds: float, now: datetime) -> dict[str, Any]:
    from billing.models import Account  # noqa: PLC0415 (Django is there only now)
    from billing.queries import ledger_check  # noqa: PLC0415
    from billing.rules import month_of  # noqa: PLC0415
    from billing.services import budget_set  # noqa: PLC0415
    from tests import builders  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    tenant = builders.a_tenant("helix")
    with as_system():
        accounts = [
            budget_set(
                actor_id=None,
                project=builders.a_project(tenant),
                period=month_of(now.date()),
                amount=Decimal(AMOUNT),
                now=now,
            ).account_id
            for _ in range(BUDGETS)
        ]
        spend, _ = Account.objects.get_or_create(tenant=tenant, kind="spend")
    until = time.time() + seconds
    with multiprocessing.get_context("spawn").Pool(writers) as pool:
        # The processes start first; each writes for as long.
        pool.starmap(time.sleep, [(0.1,)] * writers)
        until = time.time() + seconds
        counts = pool.starmap(_write, [(dsn, accounts, spend.id, now, until)] * writers)
    operations, holds, settles, refused = (sum(each) for each in zip(*counts, strict=True))
    with as_system():
        drift = len(ledger_check())
        rows = Account.objects.filter(tenant=tenant, kind="budget")
        overspent = sum(row.debits + row.pending > row.credits for row in rows)
    return {
        "operations_per_second": round(operations / seconds),
        "operations": operations,
        "repeated_holds": holds,
        "repeated_settlements": settles,
        "refused": refused,
        "drifting_accounts": drift,
        "overspent_accounts": overspent,
        "goal": GOAL,
    }


def _rungs(now: datetime) -> dict[str, Any]:
    """Milliseconds from the commit that crosses a rung to its mark."""
    from django.utils import timezone  # noqa: PLC0415 (Django is there only now)

    from billing.models import Guardrail  # noqa: PLC0415
    from billing.rules import month_of  # noqa: PLC0415
    from billing.services import Rung, budget_set, hold_place, ladder_set  # noqa: PLC0415
    from billing.services.guardrails import guardrails_evaluate  # noqa: PLC0415
    from tests import builders  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    tenant, crossed, stop = builders.a_tenant("ridge"), {}, threading.Event()

    def beat() -> None:
        with as_system():
            while not stop.wait(1):
                guardrails_evaluate(timezone.now())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    with as_system():
        for _ in range(CROSSINGS):
            project = builders.a_project(tenant)
            budget = budget_set(
                actor_id=None,
                project=project,
                period=month_of(now.date()),
                amount=Decimal(100),
                now=now,
            )
            rungs = [Rung("committed", 80, "pause")]
            ladder_set(actor_id=None, budget=budget, rungs=rungs, now=now)
            hold_place(
                tenant_id=tenant.id,
                project_id=project.id,
                reference=uuid4(),
                amount=Decimal(90),
                starts=now,
                ends=now + timedelta(minutes=1),
                now=now,
            )
            crossed[budget.id] = timezone.now()
            time.sleep(random.random())  # noqa: S311 (crossings at any time of the beat)
        time.sleep(2)
        stop.set()
        thread.join()
        marks = Guardrail.objects.filter(budget__in=crossed).values_list("budget", "reached_at")
        took = [(at - crossed[key]).total_seconds() for key, at in marks if at is not None]
    return {"crossings": CROSSINGS, "marked": len(took), **spread(took), "goal_ms": RUNG_GOAL_MS}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Fills a new database, writes and checks."""
    with database() as servers:
        from django.utils import timezone  # noqa: PLC0415 (Django is there only now)

        now = timezone.now()
        dsn = servers.dsn("portal_system")
        return {
            "bench": "ledger",
            "writers": options.writers,
            "budgets": BUDGETS,
            "seconds": options.seconds,
            "ledger": _ledger(dsn, options.writers, options.seconds, now),
            "rung": _rungs(now),
            "machine": machine(),
        }


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.ledger", description=__doc__)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--out", type=Path, default=None, help="folder for ledger.json")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    report("ledger", measure(options), options.out)


if __name__ == "__main__":
    main()
