"""Holds, charges, budgets: what the ledger allows, and that it adds up."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.models import Account, Budget, Transfer
from billing.queries import BudgetFigures, budget_figures, ledger_check, reference_totals
from billing.rules import Period
from billing.services import (
    HoldRequest,
    hold_release,
    hold_settle,
    hold_settle_partially,
    holds_move,
)
from tenants.models import AuditEntry, Project
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.billing.builders import (
    DECEMBER,
    NOVEMBER,
    NOW,
    Hold,
    a_budget,
    a_hold,
    a_project,
)
from tests.roles import as_role, as_system

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _system() -> Iterator[None]:
    with as_system():
        yield


def figures(project: Project, at: datetime = NOW) -> BudgetFigures:
    effect = budget_figures(project_id=project.id, at=at)
    assert effect is not None
    return effect


def settle(hold: Hold, amount: str) -> Decimal:
    return hold_settle(
        tenant_id=hold.project.tenant_id, reference=hold.reference, amount=Decimal(amount), now=NOW
    )


def shown(effect: BudgetFigures) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    return effect.amount, effect.spent, effect.held, effect.left


def test_a_hold_is_set_aside_and_not_spent() -> None:
    project = a_project()
    a_budget(project, "100")
    a_hold(project, "57.60")
    assert shown(figures(project)) == (
        Decimal(100),
        Decimal(0),
        Decimal("57.60"),
        Decimal("42.40"),
    )


@pytest.mark.parametrize(
    ("amount", "charged"),
    [
        pytest.param("57.60", "57.60", id="all of it"),
        pytest.param("20.00", "20.00", id="a part; the rest is free again"),
        pytest.param("0", "0", id="nothing"),
        pytest.param("99", "57.60", id="never more than was held"),
    ],
)
def test_settling_charges_what_was_used(amount: str, charged: str) -> None:
    project = a_project()
    a_budget(project, "100")
    hold = a_hold(project, "57.60")
    assert settle(hold, amount) == Decimal(charged)
    assert shown(figures(project)) == (
        Decimal(100),
        Decimal(charged),
        Decimal(0),
        100 - Decimal(charged),
    )
    assert ledger_check() == []


def test_settling_twice_charges_once() -> None:
    project = a_project()
    a_budget(project, "100")
    hold = a_hold(project, "50")
    assert [settle(hold, "30"), settle(hold, "30")] == [Decimal(30), Decimal(0)]
    assert figures(project).spent == Decimal(30)


def test_releasing_gives_everything_back() -> None:
    project = a_project()
    a_budget(project, "100")
    hold = a_hold(project, "50")
    hold_release(tenant_id=project.tenant_id, reference=hold.reference, now=NOW)
    assert shown(figures(project)) == (Decimal(100), Decimal(0), Decimal(0), Decimal(100))
    assert reference_totals(tenant_id=project.tenant_id, reference=hold.reference) == (
        Decimal(0),
        Decimal(0),
    )


def test_a_hold_over_the_turn_of_the_month_is_split_and_charged_oldest_first() -> None:
    project = a_project()
    a_budget(project, "100")
    a_budget(project, "100", DECEMBER)
    hold = a_hold(
        project,
        "18",
        starts=datetime(2026, 11, 30, 18, tzinfo=UTC),
        ends=datetime(2026, 12, 1, 12, tzinfo=UTC),
    )
    december = datetime(2026, 12, 5, tzinfo=UTC)
    assert (figures(project).held, figures(project, december).held) == (Decimal(6), Decimal(12))
    settle(hold, "8")
    assert (figures(project).spent, figures(project, december).spent) == (Decimal(6), Decimal(2))
    assert ledger_check() == []


def move(hold: Hold, starts: datetime, ends: datetime) -> bool:
    stays = holds_move(
        tenant_id=hold.project.tenant_id,
        project_id=hold.project.id,
        requests=[HoldRequest(hold.reference, Decimal(18), starts, ends)],
        now=NOW,
    )
    return not stays


EARLY_DECEMBER = (datetime(2026, 12, 2, 6, tzinfo=UTC), datetime(2026, 12, 3, 0, tzinfo=UTC))


def test_a_hold_follows_its_booking_into_the_month_where_it_was_placed() -> None:
    project = a_project()
    a_budget(project, "100")
    a_budget(project, "100", DECEMBER)
    hold = a_hold(project, "18")
    assert move(hold, *EARLY_DECEMBER)
    assert figures(project).held == 0
    assert figures(project, EARLY_DECEMBER[0]).held == Decimal(18)
    before = Transfer.objects.count()
    assert move(hold, *EARLY_DECEMBER)
    assert Transfer.objects.count() == before
    assert settle(hold, "18") == Decimal(18)
    assert ledger_check() == []


def test_a_hold_stays_where_it_was_when_the_other_month_has_no_room() -> None:
    project = a_project()
    a_budget(project, "100")
    a_budget(project, "17.99", DECEMBER)
    hold = a_hold(project, "18")
    assert not move(hold, *EARLY_DECEMBER)
    assert figures(project).held == Decimal(18)
    assert ledger_check() == []


def moves_of(project: Project, holds: Sequence[Hold]) -> dict[UUID, Refused]:
    return holds_move(
        tenant_id=project.tenant_id,
        project_id=project.id,
        requests=[HoldRequest(hold.reference, Decimal(18), *EARLY_DECEMBER) for hold in holds],
        now=NOW,
    )


def test_many_holds_move_in_as_few_statements_as_one() -> None:
    """The account stays locked until the commit, so a plan must not move them one by one."""
    project = a_project()
    a_budget(project, "500")
    a_budget(project, "500", DECEMBER)
    holds = [a_hold(project, "18") for _ in range(13)]
    taken = []
    for some in (holds[:1], holds[1:]):
        with CaptureQueriesContext(connection) as queries:
            assert not moves_of(project, some)
        taken.append(len(queries))
    assert taken[1] <= taken[0]
    assert figures(project, EARLY_DECEMBER[0]).held == 13 * 18
    assert ledger_check() == []


def test_of_many_holds_those_move_that_the_other_month_can_pay() -> None:
    project = a_project()
    a_budget(project, "500")
    a_budget(project, "100", DECEMBER)
    holds = [a_hold(project, "18") for _ in range(8)]
    assert [*moves_of(project, holds)] == [hold.reference for hold in holds[5:]]
    assert figures(project).held == 3 * 18
    assert figures(project, EARLY_DECEMBER[0]).held == 5 * 18
    assert ledger_check() == []


def test_a_split_hold_that_fits_one_month_only_holds_nothing() -> None:
    project = a_project()
    a_budget(project, "100")
    a_budget(project, "11.99", DECEMBER)
    with pytest.raises(Refused) as refusal:
        a_hold(
            project,
            "18",
            starts=datetime(2026, 11, 30, 18, tzinfo=UTC),
            ends=datetime(2026, 12, 1, 12, tzinfo=UTC),
        )
    assert refusal.value.code == "budget_exceeded"
    assert "December 2026" in refusal.value.sentence
    assert figures(project).held == 0


def test_a_hold_that_does_not_fit_says_what_is_left_and_what_it_needs() -> None:
    project = a_project()
    a_budget(project, "60")
    a_hold(project, "48")
    with pytest.raises(Refused) as refusal:
        a_hold(project, "57.60")
    no = refusal.value
    assert (no.code, no.kind, no.param, no.owner) == (
        "budget_exceeded",
        "budget",
        "request",
        "tenant_admin",
    )
    assert (no.numbers["left"], no.numbers["needs"], no.numbers["short"]) == (
        "12.00",
        "57.60",
        "45.60",
    )
    assert "€12.00 left for November 2026; this needs €57.60" in no.sentence
    assert no.frees_at == datetime(2026, 12, 1, tzinfo=UTC)
    assert figures(project).held == Decimal(48)


def test_a_window_beyond_all_budgets_is_refused_with_the_day() -> None:
    project = a_project()
    a_budget(project, "100")
    with pytest.raises(Refused) as refusal:
        a_hold(project, "1", ends=datetime(2026, 12, 1, 1, tzinfo=UTC))
    assert refusal.value.code == "no_budget"
    assert "1 Dec 2026" in refusal.value.sentence
    assert "ends before then" in refusal.value.sentence
    with pytest.raises(Refused) as refusal:
        a_hold(a_project("other"), "1")
    assert "ends before then" not in refusal.value.sentence


@pytest.mark.parametrize(
    ("zone", "moment"),
    [
        ("UTC", "from 1 Dec 2026 00:00 UTC on"),
        ("Europe/Berlin", "from 1 Dec 2026 01:00 CET on"),
        ("America/New_York", "from 30 Nov 2026 19:00 EST on"),
    ],
)
def test_the_moment_without_a_budget_is_said_in_the_reader_s_zone(zone: str, moment: str) -> None:
    """The budget ends with the UTC day; in New York its last evening is without a budget."""
    project = a_project()
    a_budget(project, "100")
    with timezone.override(zone), pytest.raises(Refused) as refusal:
        a_hold(project, "1", ends=datetime(2026, 12, 1, 1, tzinfo=UTC))
    assert moment in refusal.value.sentence
    assert refusal.value.numbers["from"] == "2026-12-01"
    assert refusal.value.numbers["at"] == "2026-12-01T00:00:00+00:00"


def test_days_between_two_budgets_are_without_one_until_the_next_begins() -> None:
    project = a_project()
    a_budget(project, "100")
    a_budget(project, "100", Period(date(2027, 2, 1), date(2027, 3, 1)))
    for starts in (datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 31, 9, tzinfo=UTC)):
        with pytest.raises(Refused) as refusal:
            a_hold(project, "1", starts=starts, ends=starts + timedelta(hours=2))
        assert "UTC until 1 Feb 2027 00:00 UTC. An admin" in refusal.value.sentence
    with pytest.raises(Refused) as refusal:
        a_hold(project, "1", starts=datetime(2027, 3, 1, tzinfo=UTC), ends=datetime(2027, 3, 2, tzinfo=UTC))
    assert "from 1 Mar 2027 00:00 UTC on. An admin" in refusal.value.sentence


def test_a_hold_of_nothing_writes_nothing() -> None:
    project = a_project()
    a_hold(project, "0")
    assert not Transfer.objects.exists()


def test_the_last_cent_can_be_held() -> None:
    project = a_project()
    a_budget(project, "0.01")
    a_hold(project, "0.01")
    assert figures(project).left == 0


def test_a_budget_may_grow_and_shrink_down_to_what_is_used() -> None:
    project = a_project()
    a_budget(project, "100")
    settle(a_hold(project, "30"), "20")
    a_hold(project, "15")
    a_budget(project, "250.5")
    assert shown(figures(project)) == (
        Decimal("250.5"),
        Decimal(20),
        Decimal(15),
        Decimal("215.5"),
    )
    a_budget(project, "35")
    assert shown(figures(project)) == (Decimal(35), Decimal(20), Decimal(15), Decimal(0))
    with pytest.raises(Refused) as refusal:
        a_budget(project, "34.99")
    assert (refusal.value.code, refusal.value.param) == ("budget_below_use", "amount")
    assert "€35.00" in refusal.value.sentence
    assert ledger_check() == []


def test_setting_the_same_amount_again_moves_no_money() -> None:
    project = a_project()
    first = a_budget(project, "100")
    assert a_budget(project, "100").id == first.id
    assert Transfer.objects.count() == 1


def test_budgets_of_a_project_share_no_day() -> None:
    project = a_project()
    a_budget(project, "100")
    with pytest.raises(Refused) as refusal:
        a_budget(project, "100", Period(date(2026, 11, 30), date(2026, 12, 31)))
    assert refusal.value.code == "budget_overlaps"
    assert "November 2026" in refusal.value.sentence


def test_the_database_itself_keeps_periods_apart() -> None:
    project = a_project()
    first = a_budget(project, "100")
    account = Account.objects.create(tenant=project.tenant, kind="budget", limited=True)
    with pytest.raises(IntegrityError, match="budget_periods_apart"), transaction.atomic():
        Budget.objects.create(
            tenant=project.tenant,
            project=project,
            account=account,
            starts=first.starts,
            ends=first.ends,
        )


def test_setting_a_budget_leaves_a_record_with_both_amounts() -> None:
    project = a_project()
    a_budget(project, "100")
    a_budget(project, "80")
    details = [entry.detail for entry in AuditEntry.objects.order_by("id")]
    assert [(d["before"]["amount"], d["after"]["amount"]) for d in details] == [
        ("0", "100.000000"),
        ("100.000000", "80.000000"),
    ]


@pytest.mark.parametrize(
    "statement", ["UPDATE billing_transfer SET amount = 1", "DELETE FROM billing_transfer"]
)
def test_a_transfer_never_changes(statement: str) -> None:
    a_budget(a_project(), "100")
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        as_role("portal_owner"),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "-1", "0", "1e13"])
def test_no_impossible_amount_enters_the_ledger(amount: str) -> None:
    project = a_project()
    budget = a_budget(project, "100")
    funding = Transfer.objects.get()
    with (
        pytest.raises(DatabaseError),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_transfer"
            " (id, tenant_id, kind, debit_id, credit_id, amount, at, note)"
            " VALUES (%s, %s, 'fund', %s, %s, CAST(%s AS numeric), now(), '')",
            [uuid4(), project.tenant_id, funding.debit_id, budget.account_id, amount],
        )
    assert figures(project).amount == 100


def test_a_changed_balance_is_found_by_recomputing() -> None:
    project = a_project()
    budget = a_budget(project, "100")
    a_hold(project, "10")
    assert ledger_check() == []
    with as_role("portal_owner"):
        Account.objects.filter(id=budget.account_id).update(pending=Decimal(3))
    (drift,) = ledger_check()
    assert (drift.account_id, drift.field, drift.stored, drift.recomputed) == (
        budget.account_id,
        "pending",
        Decimal(3),
        Decimal(10),
    )


def test_a_web_request_can_hold_but_not_move_balances() -> None:
    project = a_project()
    budget = a_budget(project, "100")
    with connection.cursor() as cursor:
        cursor.execute("SET ROLE portal_web")
    with tenant_tx(project.tenant_id):
        hold = a_hold(project, "10")
        assert settle(hold, "4") == 4
        assert figures(project).spent == 4
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            Account.objects.filter(id=budget.account_id).update(credits=10**6)


def test_a_budget_of_another_tenant_can_not_be_held_from() -> None:
    mine, theirs = a_project(), a_project("climate")
    a_budget(theirs, "100")
    with connection.cursor() as cursor:
        cursor.execute("SET ROLE portal_web")
    with tenant_tx(mine.tenant_id), pytest.raises((Refused, Project.DoesNotExist)):
        a_hold(theirs, "10")


def test_november_is_over_at_midnight_utc() -> None:
    project = a_project()
    a_budget(project, "100", NOVEMBER)
    assert budget_figures(project_id=project.id, at=datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC))
    assert budget_figures(project_id=project.id, at=datetime(2026, 12, 1, tzinfo=UTC)) is None


def part(hold: Hold, amount: str, keep: str) -> tuple[Decimal, Decimal]:
    return hold_settle_partially(
        tenant_id=hold.project.tenant_id,
        reference=hold.reference,
        amount=Decimal(amount),
        keep=Decimal(keep),
        now=NOW,
    )


def test_a_part_is_charged_and_what_the_rest_needs_stays_held() -> None:
    project = a_project()
    a_budget(project, "100")
    hold = a_hold(project, "60")
    assert part(hold, "20", "30") == (Decimal(20), Decimal(30))
    assert shown(figures(project)) == (Decimal(100), Decimal(20), Decimal(30), Decimal(50))
    assert settle(hold, "30") == Decimal(30)
    assert shown(figures(project)) == (Decimal(100), Decimal(50), Decimal(0), Decimal(50))
    assert ledger_check() == []


def test_a_part_fits_into_a_budget_that_is_full_to_the_last_step() -> None:
    project = a_project()
    a_budget(project, "10")
    hold = a_hold(project, "10")
    assert part(hold, "3.333333", "6.666667") == (Decimal("3.333333"), Decimal("6.666667"))
    assert figures(project).left == 0


def test_of_two_periods_the_earlier_pays_first_and_the_later_keeps_first() -> None:
    project = a_project()
    a_budget(project, "100")
    a_budget(project, "100", DECEMBER)
    starts, ends = datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 12, 2, tzinfo=UTC)
    hold = a_hold(project, "40", starts=starts, ends=ends)
    assert part(hold, "15", "22") == (Decimal(15), Decimal(22))
    november, december = figures(project), figures(project, datetime(2026, 12, 1, tzinfo=UTC))
    assert (november.spent, november.held) == (Decimal(15), Decimal(2))
    assert (december.spent, december.held) == (Decimal(0), Decimal(20))


def test_no_more_is_charged_or_kept_in_part_than_was_held() -> None:
    project = a_project()
    a_budget(project, "100")
    hold = a_hold(project, "10")
    assert part(hold, "8", "8") == (Decimal(8), Decimal(2))
    assert part(hold, "99", "0") == (Decimal(2), Decimal(0))
    assert part(hold, "1", "1") == (Decimal(0), Decimal(0))
    assert reference_totals(tenant_id=project.tenant_id, reference=hold.reference) == (
        Decimal(0),
        Decimal(10),
    )
