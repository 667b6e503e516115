"""Operators correct charges: exact in the ledger, bounded, and shown to the project."""

import random
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.models import Booking, Gpu
from allocation.rules.approvals import Step
from allocation.services.decide.invariants import _CHECKS, _violations
from allocation.services.operate.corrections import Correction, booking_correct
from billing.models import Transfer
from billing.queries import budget_figures, ledger_check
from billing.services import hold_place, hold_settle
from tenants.models import AuditEntry
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx, tenant_tx
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_system

CHARGED = Decimal("2.000001")


@pytest.fixture
def ended(site: Site) -> Booking:
    """A booking that is over and was charged CHARGED of what it held."""
    now = timezone.now()
    mara = site.people["researcher"]
    booking = a_booking(site.project, mara.id, state="ended", starts=now, now=now)
    with as_system():
        hold_place(
            tenant_id=site.tenant.id,
            project_id=site.project.id,
            reference=booking.id,
            amount=booking.hold_amount,
            starts=now,
            ends=now + timedelta(hours=2),
            now=now,
        )
        booking.charged = hold_settle(tenant_id=site.tenant.id, reference=booking.id, amount=CHARGED, now=now)
        assert booking.charged == CHARGED < booking.hold_amount
        booking.outcome, booking.ended_at = "completed", now
        booking.save()
    return booking


def asked(booking: Booking, kind: str, amount: str, reason: str = "The node lied.") -> dict[str, str]:
    return {
        "tenant": "helix",
        "booking": booking.label,
        "kind": kind,
        "amount": amount,
        "reason": reason,
    }


def fresh(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


def an_approval(site: Site) -> str:
    """A booking of the researcher that waits for its lead, after one that never ran."""
    ask = {"project": "folding", "tier": "standard", "request": "1 h100 for 20m"}
    never = said(site.researcher.post("bookings", ask))
    assert site.researcher.post(f"bookings/{never['number']}/cancel").status_code < 300
    with tenant_tx(site.tenant.id):
        terms = ApprovalRuleTerms(name="Long runs", steps=[Step("lead")], min_seconds=1_200)
        approval_rule_set(actor=site.actor("admin"), terms=terms, now=timezone.now())
    assert said(site.researcher.post("bookings", ask))["state"] == "awaiting_approval"
    (found,) = said(site.lead.get("approvals", show="to_decide"))["items"]
    return str(found["id"])


def all_adds_up() -> bool:
    (check,) = (each for each in _CHECKS if each.name == "a correction that is not in the ledger")
    with as_system():
        return not ledger_check() and not list(_violations(check))


def test_what_is_given_back_stands_in_ledger_receipt_and_log(
    site: Site, ended: Booking, client: Client
) -> None:
    def spent() -> Decimal:
        with as_system():
            effect = budget_figures(project_id=site.project.id, at=ended.submitted)
        assert effect is not None
        return effect.spent

    before = spent()
    answer = site.operator.post("corrections", asked(ended, "refund", "1.25"), idempotency_key="k")
    assert (answer.status_code, said(answer)["paid"]) == (201, "0.750001")
    again = site.operator.post("corrections", asked(ended, "refund", "1.25"), idempotency_key="k")
    assert again["Idempotency-Replayed"] == "true"
    assert spent() == before - Decimal("1.25")
    price = said(site.researcher.get(f"bookings/{ended.label}"))["price"]
    assert (price["charged"], price["corrected"]) == ("2.000001", "-1.250000")
    client.force_login(site.people["researcher"])
    page = client.get(f"/t/helix/bookings/{ended.label}").content.decode()
    for words in (
        "Refunded by the operator",
        "Total paid",
        "€0.75",
        "refunded €1.25: The node",
    ):
        assert words in page
    with tenant_tx(site.tenant.id):
        (entry,) = AuditEntry.objects.filter(action="booking.corrected")
        (line,) = Transfer.objects.filter(reference=ended.id, kind="reverse")
    assert (entry.actor_id, entry.detail["after"]["reason"]) == (
        site.people["operator"].id,
        "The node lied.",
    )
    assert (line.amount, line.note) == (Decimal("1.25"), "The node lied.")
    assert all_adds_up()


def test_an_approver_reads_what_budgets_say_and_of_bookings_that_ran(
    site: Site, ended: Booking, client: Client
) -> None:
    with as_system():
        an_allocation(ended, Gpu.objects.all()[0], state="ended")
    ask = an_approval(site)
    assert site.operator.post("corrections", asked(ended, "refund", "1.25")).status_code == 201
    history = said(site.lead.get(f"approvals/{ask}"))["history"]
    assert (Decimal(history["charged"]), history["bookings"]) == (Decimal("0.750001"), 1)
    client.force_login(site.people["lead"])
    card = client.get(f"/t/helix/approvals/{ask}").content.decode()
    assert "1 booking ran in the last 90 days" in card
    assert "€0.75 charged" in card
    (row,) = (
        line
        for line in client.get("/t/helix/bookings.csv").getvalue().decode().splitlines()
        if ended.label in line
    )
    assert "0.750001" in row


def test_nobody_else_corrects_and_nothing_beyond_its_bounds(site: Site, ended: Booking) -> None:
    for api in (site.researcher, site.lead, site.admin, site.outsider):
        assert api.post("corrections", asked(ended, "refund", "1")).status_code == 403
    room = str(ended.hold_amount - CHARGED)
    for kind, amount, reason, code in (
        ("refund", "2.000002", "x", "refund_too_large"),
        ("charge", str(ended.hold_amount), "x", "charge_too_large"),
        ("refund", "0", "x", "bad_amount"),
        ("refund", "-1", "x", "bad_amount"),
        ("refund", "1", " ", "empty"),
    ):
        answer = site.operator.post("corrections", asked(ended, kind, amount, reason))
        known = ((422, code), (400, code), (400, "blank"))
        assert (answer.status_code, said(answer)["code"]) in known, (code, said(answer))
    wrong = {**asked(ended, "refund", "1"), "booking": "BK-999"}
    assert said(site.operator.post("corrections", wrong))["code"] == "no_such_booking"
    assert fresh(ended).corrected == 0
    assert site.operator.post("corrections", asked(ended, "charge", room)).status_code == 201
    assert (
        said(site.operator.post("corrections", asked(ended, "refund", str(ended.hold_amount))))["paid"]
        == "0.000000"
    )
    assert all_adds_up()


@pytest.mark.turn
def test_random_corrections_keep_what_was_paid_between_nothing_and_what_was_held(
    site: Site, ended: Booking
) -> None:
    rng, paid = random.Random(7), CHARGED  # noqa: S311 (a game, not a secret)
    operator, now, refused = site.people["operator"], timezone.now(), 0
    for step in range(80):
        amount = Decimal(rng.randrange(1, 4_000_000)) / 1_000_000
        more = rng.random() < 0.5
        after = paid + amount if more else paid - amount
        try:
            with operator_tx():
                booking_correct(
                    operator=operator,
                    booking=ended,
                    correction=Correction(amount, "x", more=more),
                    now=now + timedelta(seconds=step),
                )
        except Refused:
            refused += 1
            assert not 0 <= after <= ended.hold_amount
        else:
            paid = after
        assert fresh(ended).corrected == paid - CHARGED
    assert 10 < refused < 70
    assert all_adds_up()


def test_a_statement_with_corrections_does_not_say_that_it_is_as_in_the_budgets(
    site: Site, ended: Booking
) -> None:
    """A refund goes back to the budget that was charged, maybe of an earlier month."""
    client = Client()
    client.force_login(site.people["admin"])
    address = f"/t/{site.tenant.slug}/statements?month={timezone.now():%Y-%m}"
    assert "as in the budgets" in client.get(address).content.decode()
    with operator_tx():
        booking_correct(
            operator=site.people["operator"],
            booking=ended,
            correction=Correction(Decimal(1), "x", more=False),
            now=timezone.now(),
        )
    page = client.get(address).content.decode()
    assert "as in the budgets" not in page
    assert "with 1 correction; budgets may count them in the month of the booking" in page


def test_the_database_keeps_the_bounds_and_who_may(site: Site, ended: Booking) -> None:
    with tenant_tx(site.tenant.id):
        (settled,) = Transfer.objects.filter(reference=ended.id, kind="settle")
    back = Transfer(
        tenant_id=settled.tenant_id,
        kind="reverse",
        debit_id=settled.credit_id,
        credit_id=settled.debit_id,
        amount=CHARGED,
        reference=ended.id,
        day=settled.day,
        at=timezone.now(),
    )
    with pytest.raises(DatabaseError, match="by operators"), tenant_tx(site.tenant.id):
        back.save(force_insert=True)
    with as_system(), transaction.atomic():
        back.save(force_insert=True)
    again = Transfer(**{**_values(back), "amount": Decimal("0.000001")})
    refused = pytest.raises(IntegrityError, match="refund of more")
    with as_system(), refused, transaction.atomic():
        again.save(force_insert=True)


def _values(row: Transfer) -> dict[str, object]:
    names = ("tenant_id", "kind", "debit_id", "credit_id", "reference", "day", "at")
    return {name: getattr(row, name) for name in names}


def test_the_page_corrects_and_says_what_is_wrong_beside_the_field(
    site: Site, ended: Booking, client: Client
) -> None:
    client.force_login(site.people["operator"])
    form = asked(ended, "refund", "9")
    form["act"] = form.pop("kind")
    answer = client.post("/ops/corrections", form)
    assert answer.status_code == 422
    assert "At most €2.00 can be refunded." in answer.content.decode()
    answer = client.post("/ops/corrections", form | {"amount": "2"}, follow=True)
    assert "Refunded: €2.00." in answer.content.decode()
    assert fresh(ended).corrected == -2


def test_the_page_shows_what_can_be_corrected_and_what_was(
    site: Site, ended: Booking, client: Client
) -> None:
    site.operator.post("corrections", asked(ended, "refund", "1.25"), idempotency_key="k")
    client.force_login(site.people["operator"])
    shown = client.get(f"/ops/corrections?tenant=helix&booking={ended.label}").content.decode()
    assert f"Correct {ended.label}" in shown
    [made] = said(site.operator.get("corrections"))["items"]
    assert (made["booking"], made["amount"], made["paid"]) == (ended.label, "-1.250000", "0.750001")
    for text in ("€2.00", "−€1.25", "€0.75", made["reason"]):
        assert text in shown
    unknown = client.get("/ops/corrections?tenant=helix&booking=BK-999999")
    assert "This organisation has no booking with that number." in unknown.content.decode()
    assert site.researcher.get("corrections").status_code == 403
