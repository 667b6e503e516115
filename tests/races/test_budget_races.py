"""Eight writers at one budget: the database decides who is paid, not a look before the leap."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Barrier, Event
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, transaction

from billing.models import Account, Budget, Transfer
from billing.queries import ledger_check
from billing.rules import BudgetOwner, BudgetTerms
from billing.services import HoldRequest, budget_put, hold_settle, holds_place
from tenants.models import Lab, Project
from tenants.platform.errors import Refused
from tests.billing.builders import DECEMBER, NOVEMBER, NOW, a_budget, a_hold, a_project
from tests.roles import as_role, as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.races
WRITERS = 8


def at_once(act: Callable[[int], object], writers: int = WRITERS) -> list[object]:
    """What eight threads, let loose together, each on its own connection, answered."""
    barrier = Barrier(writers)

    def one(number: int) -> object:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=20)
            with as_system():
                return act(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(writers) as pool:
        return list(pool.map(one, range(writers)))


def a_project_with(amount: str) -> Project:
    with as_system():
        project = a_project()
        a_budget(project, amount, NOVEMBER)
        a_budget(project, amount, DECEMBER)
    return project


def held(project: Project) -> Decimal:
    with as_system():
        accounts = Account.objects.filter(tenant=project.tenant_id, kind="budget")
        return max(account.pending for account in accounts)


def test_of_eight_holds_on_money_for_seven_exactly_seven_are_placed(real_db: Servers) -> None:
    project = a_project_with("70")

    def book(_: int) -> str:
        try:
            with transaction.atomic():
                a_hold(project, "10")
        except Refused as refusal:
            return refusal.code
        return "held"

    answers = at_once(book)
    assert sorted(map(str, answers)) == ["budget_exceeded"] + ["held"] * 7
    assert held(project) == Decimal(70)
    with as_system():
        assert ledger_check() == []


def test_without_the_constraint_looking_first_overspends(real_db: Servers) -> None:
    """The negative control: eight look, see room, and all hold."""
    project = a_project_with("70")
    with psycopg.connect(real_db.owner_dsn) as owner:
        owner.execute("ALTER TABLE billing_account DROP CONSTRAINT account_never_overspent")
    looked = Barrier(WRITERS)

    def look_then_hold(_: int) -> bool:
        with transaction.atomic():
            account = Account.objects.get(budget__project=project, budget__starts=NOVEMBER.starts)
            is_room = account.credits - account.debits - account.pending >= 10
            looked.wait(timeout=20)
            if is_room:
                a_hold(project, "10")
        return is_room

    assert at_once(look_then_hold) == [True] * WRITERS
    assert held(project) == Decimal(80)


def test_eight_settlements_of_one_hold_charge_once(real_db: Servers) -> None:
    project = a_project_with("70")
    with as_system():
        hold = a_hold(project, "60")

    def settle(_: int) -> Decimal:
        with transaction.atomic():
            return hold_settle(
                tenant_id=project.tenant_id,
                reference=hold.reference,
                amount=Decimal(40),
                now=NOW,
            )

    charged = at_once(settle)
    assert sorted(map(str, charged)) == ["0"] * 7 + ["40.000000"]
    with as_system():
        assert Transfer.objects.filter(kind="settle").count() == 1
        assert ledger_check() == []


def test_holds_over_two_months_in_both_directions_never_deadlock(real_db: Servers) -> None:
    project = a_project_with("1000")

    def book_and_end(_: int) -> int:
        for _turn in range(5):
            with transaction.atomic():
                hold = a_hold(
                    project,
                    "18",
                    starts=datetime(2026, 11, 30, 18, tzinfo=UTC),
                    ends=datetime(2026, 12, 1, 12, tzinfo=UTC),
                )
            with transaction.atomic():
                hold_settle(
                    tenant_id=project.tenant_id,
                    reference=hold.reference,
                    amount=Decimal(9),
                    now=NOW,
                )
        return 5

    assert at_once(book_and_end) == [5] * WRITERS
    with as_system():
        spent = [account.debits for account in Account.objects.filter(kind="budget")]
        assert (sum(spent), held(project), ledger_check()) == (Decimal(360), Decimal(0), [])


BEFORE_TRIGGER = """
DROP TRIGGER apply_transfers ON billing_transfer;
CREATE FUNCTION apply_too_early() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  UPDATE billing_account SET pending = pending + NEW.amount
    WHERE id = NEW.debit_id AND kind = 'budget';
  RETURN NEW;
END $$;
CREATE TRIGGER apply_too_early BEFORE INSERT ON billing_transfer
  FOR EACH ROW WHEN (NEW.kind = 'hold') EXECUTE FUNCTION apply_too_early();
"""


@pytest.mark.parametrize(
    ("ddl", "drifting"),
    [
        pytest.param("", [], id="after the insert: right"),
        pytest.param(BEFORE_TRIGGER, ["pending"], id="before it: a dropped repeat is counted"),
    ],
)
def test_a_repeated_hold_is_counted_once_only_by_a_trigger_after_the_insert(
    real_db: Servers, ddl: str, drifting: list[str]
) -> None:
    project = a_project_with("70")
    with psycopg.connect(real_db.owner_dsn) as owner:
        if ddl:
            owner.execute(ddl)
    with as_role("portal_system"):
        hold = a_hold(project, "10")
        repeat = Transfer.objects.get(reference=hold.reference)
        Transfer.objects.bulk_create([repeat], ignore_conflicts=True)
        assert [drift.field for drift in ledger_check()] == drifting


def hold_in(project: Project, amount: str) -> str:
    request = HoldRequest(uuid4(), Decimal(amount), NOW, NOW + timedelta(hours=6))
    with transaction.atomic():
        refused = holds_place(tenant_id=project.tenant_id, project_id=project.id, requests=[request], now=NOW)
    return refused[request.reference].code if refused else "held"


def a_limit(project: Project, amount: str, level: str) -> Budget:
    terms = BudgetTerms(NOVEMBER, Decimal(amount))
    owner = {
        "tenant": BudgetOwner(project.tenant_id),
        "lab": BudgetOwner(project.tenant_id, lab_id=project.lab_id),
        "platform": BudgetOwner(None),
    }[level]
    return budget_put(actor_id=None, owner=owner, terms=terms, now=NOW)


@pytest.mark.parametrize("level", ["tenant", "lab", "platform"])
def test_two_projects_never_hold_more_together_than_the_level_above_may(real_db: Servers, level: str) -> None:
    first = a_project_with("1000")
    with as_system():
        # The platform counts projects of two tenants.
        second = a_project("second", None if level == "platform" else first.tenant)
        a_budget(second, "1000")
        for each in (first, second) if level == "lab" else ():
            each.lab, _ = Lab.objects.get_or_create(tenant=first.tenant, slug="imaging", name="Imaging")
            each.save(update_fields=["lab"])
        limit = a_limit(first, "70", level)
    answers = at_once(lambda number: hold_in((first, second)[number % 2], "10"))
    assert sorted(map(str, answers)) == ["budget_exceeded"] + ["held"] * 7
    with as_system():
        assert Account.objects.get(id=limit.account_id).pending == Decimal(70)
        assert ledger_check() == []


WITHOUT_LOCK = """
CREATE OR REPLACE FUNCTION billing_count_what_stands() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  UPDATE billing_account a SET debits = m.debits, pending = m.pending
    FROM (SELECT sum(debits) AS debits, sum(pending) AS pending
          FROM billing_movement WHERE account_id = NEW.account_id) m
    WHERE a.id = NEW.account_id AND m.debits IS NOT NULL;
  RETURN NULL;
END $$;
"""


@pytest.mark.parametrize(
    ("level", "ddl", "drifting"),
    [
        pytest.param("tenant", "", [], id="the new limit waits for holds that are being written"),
        pytest.param("platform", "", [], id="that of the platform waits for all tenants"),
        pytest.param("platform", WITHOUT_LOCK, ["pending"], id="without the lock it misses them"),
    ],
)
def test_a_limit_set_while_a_hold_is_written_counts_it(
    real_db: Servers, level: str, ddl: str, drifting: list[str]
) -> None:
    project = a_project_with("1000")
    with as_system():
        # Makes the accounts: a hold that makes one locks the version of the reference data, too.
        hold_in(project, "1")
    if ddl:
        with psycopg.connect(real_db.owner_dsn) as owner:
            owner.execute(ddl)
    written, waits = Event(), Event()

    def act(number: int) -> None:
        if number == 0:
            with transaction.atomic():
                hold_in(project, "10")
                written.set()
                # The limit is being set, or is set already when nothing makes it wait.
                waits.wait(timeout=20)
        elif number == 1:
            written.wait(timeout=20)
            a_limit(project, "500", level)
            waits.set()
        else:
            written.wait(timeout=20)
            with connection.cursor() as cursor:
                while not waits.is_set():
                    cursor.execute(
                        # Of this database: other tests run on the same server.
                        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
                        " WHERE d.datname = current_database()"
                        " AND l.locktype = 'advisory' AND NOT l.granted"
                    )
                    if cursor.fetchone()[0]:
                        waits.set()

    at_once(act, writers=3)
    with as_system():
        assert [drift.field for drift in ledger_check()] == drifting
