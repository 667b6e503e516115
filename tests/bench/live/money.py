"""What the money pages take at size: `python -m tests.bench.live.money --charges 100000`.

A new database with a month of that many charges in one project: 40 people, three tiers, two classes
and four campaigns. Each page is requested like a browser does, in this process: server time is that
of Django and PostgreSQL together, without a network. The first request of a page is not counted.
"""

import argparse
import time
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from tests.bench.live.telemetry import database
from tests.bench.machine import machine, report, spread

if TYPE_CHECKING:
    from django.test import Client

    from billing.rules import Period
    from tenants.models import Membership

GOAL_MS = 150
PEOPLE, TIERS, CLASSES, CAMPAIGNS = 40, ("standard", "spot", "assured"), ("h100", "a100"), 4
ROUNDS = 20

# One charge for each booking, at random seconds of the month; one in 500 is corrected.
_HELD = """
INSERT INTO billing_transfer (id, tenant_id, kind, debit_id, credit_id, amount, reference, day,
                              person_id, campaign_id, at, note)
SELECT gen_random_uuid(), b.tenant_id, 'hold', %(budget)s, %(spend)s, 1 + b.number %% 977 / 7.0,
       b.id, (b.submitted AT TIME ZONE 'UTC')::date, b.owner_id, b.campaign_id, b.submitted, ''
FROM allocation_booking b
"""
_SETTLED = """
INSERT INTO billing_transfer (id, tenant_id, kind, debit_id, credit_id, amount, hold_id, reference,
                              day, person_id, campaign_id, at, note)
SELECT gen_random_uuid(), tenant_id, 'settle', debit_id, credit_id, amount, id, reference, day,
       person_id, campaign_id, at, ''
FROM billing_transfer WHERE kind = 'hold'
"""
_REFUNDED = """
INSERT INTO billing_transfer (id, tenant_id, kind, debit_id, credit_id, amount, reference, day,
                              person_id, campaign_id, at, note)
SELECT gen_random_uuid(), t.tenant_id, 'reverse', t.credit_id, t.debit_id, 0.5, t.reference, t.day,
       t.person_id, t.campaign_id, t.at, 'A slow node'
FROM billing_transfer t JOIN allocation_booking b ON b.id = t.reference
WHERE t.kind = 'settle' AND b.number %% 500 = 0
"""


def month_fill(charges: int, month: "Period", now: datetime) -> "Membership":
    """Writes a month of charges through the ledger's triggers; returns an admin's membership."""
    from django.db import connection  # noqa: PLC0415 (Django is there only now)

    from billing.models import Account, Campaign  # noqa: PLC0415
    from billing.rules import Period  # noqa: PLC0415
    from billing.services import budget_set  # noqa: PLC0415
    from tenants.models import Role  # noqa: PLC0415
    from tests import builders  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415
    from tests.web.fleet_builders import a_booking  # noqa: PLC0415

    tenant = builders.a_tenant("helix", name="Helix Institute")
    project = builders.a_project(tenant, "folding", name="Protein folding")
    people = [builders.a_member(project, Role.RESEARCHER) for _ in range(PEOPLE)]
    with as_system(), connection.cursor() as cursor:
        for tier in TIERS:
            builders.a_tier(tier)
        period = Period((now - timedelta(days=31)).date(), (now + timedelta(days=31)).date())
        budget = budget_set(actor_id=None, project=project, period=period, amount=Decimal(10**9), now=now)
        campaigns = [
            Campaign.objects.create(tenant=tenant, project=project, slug=f"c{n}", name=f"C {n}")
            for n in range(CAMPAIGNS)
        ]
        first = a_booking(people[0], now=now)
        values: dict[str, Any] = {
            "first": first.id,
            "charges": charges - 1,
            "now": now,
            "tiers": list(TIERS),
            "people": [each.user_id for each in people],
            "classes": list(CLASSES),
            "campaigns": [each.id for each in campaigns],
            "since": month.first_second,
            "until": min(now, month.last_second),
        }
        cursor.execute(_copied(), values)
        spend = Account.objects.create(tenant=tenant, kind="spend")
        accounts = {"budget": budget.account_id, "spend": spend.id}
        for statement in (_HELD, _SETTLED, _REFUNDED):
            cursor.execute(statement, accounts)
    return builders.a_tenant_admin(tenant)


def _copied() -> str:
    """SQL that copies a booking, with other people, tiers, classes, campaigns and times."""
    from allocation.models import Booking  # noqa: PLC0415 (Django is there only now)

    kind = f"(n %% {PEOPLE} + (n / 41 %% 10 = 0)::int * (n / 410 %% 3))"
    other = {
        "id": "gen_random_uuid()",
        "number": "b.number + n",
        # Most people keep to a class, a tier and a campaign; every tenth booking differs.
        "owner_id": f"(%(people)s::int[])[1 + n %% {PEOPLE}]",
        "tier_id": f"(%(tiers)s::text[])[1 + {kind} %% {len(TIERS)}]",
        "planned_class": f"(%(classes)s::text[])[1 + {kind} %% {len(CLASSES)}]",
        "campaign_id": f"(%(campaigns)s::uuid[])[1 + {kind} %% {CAMPAIGNS + 1}]",
        "submitted": "%(since)s + random() * (%(until)s - %(since)s)",
        "state": "'ended'",
        "charged": "0",
        "ended_at": "%(now)s",
    }
    names = [str(field.column) for field in Booking._meta.local_fields]
    values = (other.get(name, f"b.{name}") for name in names)
    return (
        f"INSERT INTO allocation_booking ({', '.join(names)})"  # noqa: S608 (names of columns)
        f" SELECT {', '.join(values)} FROM allocation_booking b,"
        " generate_series(1, %(charges)s) n WHERE b.id = %(first)s"
    )


def pages_measure(admin: "Membership", month: "Period") -> dict[str, Any]:
    """Server time and number of queries of each page."""
    from django.db import connection  # noqa: PLC0415 (Django is there only now)
    from django.test import Client, override_settings  # noqa: PLC0415
    from django.test.utils import CaptureQueriesContext  # noqa: PLC0415

    page = f"/t/helix/statements?month={month.starts:%Y-%m}"
    pages = {
        "project": "/t/helix/p/folding",
        "statement": page,
        "statement_of_project": f"{page}&project=folding&by=tier",
        "statement_last_lines": f"{page}&page=100000",
        "budgets": "/t/helix/budgets",
    }
    found: dict[str, Any] = {}
    with override_settings(SESSION_ENGINE="tests.sessions"):
        client = Client()
        client.force_login(admin.user)
        for name, page in pages.items():
            with CaptureQueriesContext(connection) as caught:
                assert client.get(page).status_code == 200, page
                # The next request empties the list.
                queries = list(caught.captured_queries)
            slowest = max(queries, key=lambda each: float(each["time"]))
            found[name] = {
                "queries": len(queries),
                "slowest_query_ms": round(float(slowest["time"]) * 1000),
                "slowest_query": " ".join(slowest["sql"].split())[:160],
                **spread([_seconds(client, page) for _ in range(ROUNDS)]),
            }
    return found


def _seconds(client: "Client", page: str) -> float:
    began = time.perf_counter()
    client.get(page)
    return time.perf_counter() - began


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Fills a new database and requests the pages."""
    with database() as servers:
        from django.utils import timezone  # noqa: PLC0415 (Django is there only now)

        from billing.rules import month_of  # noqa: PLC0415

        now, began = timezone.now(), time.perf_counter()
        month = month_of((now - timedelta(days=5)).date())
        admin = month_fill(options.charges, month, now)
        # As autovacuum does within minutes.
        with psycopg.connect(servers.dsn("postgres"), autocommit=True) as link:
            link.execute("VACUUM ANALYZE")
        filled = round(time.perf_counter() - began, 1)
        pages = pages_measure(admin, month)
    return {
        "bench": "money",
        "charges": options.charges,
        "filled_s": filled,
        "goal_ms": GOAL_MS,
        "pages": pages,
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.money", description=__doc__)
    parser.add_argument("--charges", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=None, help="folder for money.json")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    report("money", measure(options), options.out)


if __name__ == "__main__":
    main()
