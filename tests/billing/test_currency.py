"""A site has one currency: that of its first price book. Here it is CHF."""

import base64
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client

from allocation.queries.bookings.money.statements import StatementOf, statement_of
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import Parsed, parse_ask
from allocation.rules.ask.line.text import document_text
from allocation.services.bookings.creation import booking_request
from allocation.words.amounts import class_names
from allocation.words.reasons import stored_sentence
from allocation.words.refusals import refusal_text
from billing.models import Account, PriceBook
from billing.price_books import currency_latest
from billing.queries import budget_figures_of
from billing.rules import amount_parse
from billing.services.prices import price_param
from billing.web.statement_pdf import statement_pdf
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.billing.builders import NOVEMBER, NOW, PRICES, a_budget, a_catalogue, a_project
from tests.builders import an_operator
from tests.builders_allocation import NOW as LAB_NOW
from tests.builders_allocation import a_booking_request, a_lab, a_price_book, an_ask
from tests.prices import price_book_add, price_book_publish
from tests.roles import as_owner, as_role, as_system
from tests.rules.ask_corpus import SITE

ZURICH = ZoneInfo("Europe/Zurich")
SENTENCE = "Amounts of this site are in CHF."


@pytest.fixture
def swiss(db: None) -> Iterator[PriceBook]:
    """A site whose first prices are in CHF."""
    with as_system():
        a_catalogue()
    with as_role("portal_ops"):
        yield price_book_publish(actor_id=None, valid_from=NOW, prices=PRICES, currency="CHF", now=NOW)


def test_all_versions_budgets_and_figures_have_the_currency_of_the_first(swiss: PriceBook) -> None:
    later = NOW + timedelta(days=1)
    second = price_book_publish(actor_id=None, valid_from=later, prices=PRICES, now=later)
    assert (swiss.currency, second.currency, currency_latest()) == ("CHF", "CHF", "CHF")
    with as_system():
        project = a_project()
        budget = a_budget(project, "100")
        assert Account.objects.filter(currency="CHF").count() == Account.objects.count() == 2
        assert budget_figures_of([budget.id])[budget.id].currency == "CHF"
        assert statement_of(StatementOf(project.tenant_id, NOVEMBER)).currency == "CHF"


def test_a_second_currency_is_refused_and_kept_out(swiss: PriceBook) -> None:
    later = NOW + timedelta(days=1)
    with pytest.raises(Refused) as refusal:
        price_book_publish(actor_id=None, valid_from=later, prices=PRICES, currency="EUR", now=later)
    assert (refusal.value.code, refusal.value.param) == ("bad_currency", "currency")
    assert refusal.value.sentence == SENTENCE
    # As the owner first, so that the role is taken back outside of the failed transaction.
    with as_owner(), pytest.raises(IntegrityError, match="price_book_one_currency"), transaction.atomic():
        price_book_add(version=2, valid_from=later, currency="EUR", published_at=NOW)


def test_a_site_that_has_changed_its_currency_keeps_that_of_its_newest_prices(swiss: PriceBook) -> None:
    """As a site of 1.0 could; nothing refuses its former price books."""
    later = NOW + timedelta(days=1)
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_pricebook DISABLE TRIGGER one_currency")
        price_book_add(version=swiss.version + 1, valid_from=later, currency="EUR", published_at=NOW)
        cursor.execute("ALTER TABLE billing_pricebook ENABLE TRIGGER one_currency")
    third = price_book_publish(actor_id=None, valid_from=later + timedelta(days=1), prices=PRICES, now=later)
    assert (third.currency, currency_latest()) == ("EUR", "EUR")


@pytest.mark.django_db
def test_the_first_prices_follow_budgets_that_there_are_and_know_few_currencies() -> None:
    with as_system():
        a_catalogue()
        a_budget(a_project(), "100")
    terms = {"actor_id": None, "valid_from": NOW, "prices": PRICES, "now": NOW}
    for currency, says in (("CHF", "are in EUR"), ("XAU", "are in EUR")):
        with as_role("portal_ops"), pytest.raises(Refused, match=says):
            price_book_publish(**terms, currency=currency)
    with as_role("portal_ops"):
        assert price_book_publish(**terms, currency="EUR").currency == "EUR"


@pytest.mark.django_db
def test_a_currency_without_cents_is_refused() -> None:
    with as_system():
        a_catalogue()
    with as_role("portal_ops"), pytest.raises(Refused, match="Choose a currency of EUR, USD"):
        price_book_publish(actor_id=None, valid_from=NOW, prices=PRICES, currency="JPY", now=NOW)


def test_the_words_of_a_request_are_in_the_sites_currency(swiss: PriceBook) -> None:
    catalogue = replace(ask_catalogue(), classes=SITE.classes)
    assert catalogue.currency == "CHF"

    def read(text: str) -> Parsed:
        return parse_ask(f"2 h100 6h {text}", catalogue=catalogue, now=NOW, zone=ZURICH)

    for words in ("may burst up to CHF 60", "may burst up to 60 chf", "may burst up to 60"):
        found = read(words)
        assert (found.problems, found.most_cost) == ((), Decimal(60)), words
        assert "may burst up to CHF 60" in [part.meaning for part in found.parts]
        again = parse_ask(document_text(found.document(), ZURICH), catalogue=catalogue, now=NOW, zone=ZURICH)
        assert again.document() == found.document()
    for words in ("may burst up to EUR 60", "may burst up to €60", "may burst up to 60 usd"):
        (problem,) = read(words).problems
        assert refusal_text(problem.text.code, **problem.text.facts) == SENTENCE
        assert [each.text for each in problem.repairs] == ["2 h100 6h may burst up to CHF 60"]


def test_a_booking_is_held_in_the_sites_currency(db: None) -> None:
    a_price_book(currency="CHF")
    lab = a_lab("helix")
    request = a_booking_request(lab.project, an_ask())
    with tenant_tx(lab.tenant_id):
        booking = booking_request(actor=lab.actor, request=request, now=LAB_NOW)
        figures = budget_figures_of([lab.budget.id])[lab.budget.id]
    assert (booking.currency, figures.currency) == ("CHF", "CHF")
    assert figures.held == booking.hold_amount > 0


def test_energy_is_in_the_sites_currency_and_without_a_site_in_none() -> None:
    facts = {"prefers": "price", "cost": 1_200, "cost_before": 3_100, "zone": "basel", "zone_before": "basel"}
    stored = {"code": "energy", "numbers": facts | {"clock": "02:00", "clock_before": "22:00"}}
    with class_names(dict, currency=lambda: "CHF"):
        assert stored_sentence(stored).endswith(" in basel: 0.12 instead of 0.31 CHF per kWh.")
    assert stored_sentence(stored).endswith(" in basel: 0.12 instead of 0.31 per kWh.")


@pytest.mark.parametrize("text", ["EUR 5", "€5", "5 $", "5 usd"])
def test_an_amount_in_another_currency_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=SENTENCE) as refusal:
        amount_parse(text, param="amount", currency="CHF")
    assert (refusal.value.code, refusal.value.param) == ("bad_amount", "amount")
    assert amount_parse("CHF 1,800.50", param="amount", currency="CHF") == Decimal("1800.50")


def test_a_statement_without_lines_is_in_the_sites_currency() -> None:
    file = BytesIO()
    statement_pdf("Statement", ["Helix"], [], "CHF", file)
    streams = re.findall(rb"stream\r?\n(.*?)~>\s*endstream", file.getvalue(), re.DOTALL)
    text = b"".join(zlib.decompress(base64.a85decode(each.strip(), adobe=False)) for each in streams)
    assert b"(CHF 0.00)" in text
    assert b"EUR" not in text


def test_the_pages_of_a_new_site_choose_its_currency_once(db: None) -> None:
    with as_system():
        a_catalogue()
    client = Client()
    client.force_login(an_operator())
    assert "<option selected>EUR</option>" in client.get("/ops/setup").content.decode()
    sent = {price_param(*pair): f"CHF {price}" for pair, price in PRICES.items()} | {"act": "prices"}
    refused = client.post("/ops/setup", sent | {"currency": "SEK"})
    assert refused.status_code == 422
    assert "Amounts of this site are in SEK." in (page := refused.content.decode())
    assert "<option selected>SEK</option>" in page
    assert client.post("/ops/setup", sent | {"currency": "CHF"}).status_code == 302
    with as_system():
        assert PriceBook.objects.get().currency == "CHF"
    for address in ("/ops/prices", "/ops/setup"):
        page = client.get(address).content.decode()
        assert "EUR" not in page
        assert "€" not in page
