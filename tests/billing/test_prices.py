"""Price books: versions by date, complete, never in the past."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.http import QueryDict
from django.utils import timezone

from billing.models import Price, PriceBook, PriceDraft
from billing.price_books import CurrentPrice, PriceShelf, current_prices, price_at
from billing.services import (
    DraftTerms,
    draft_changes,
    price_draft_create,
    price_draft_discard,
    price_draft_publish,
    price_draft_rebase,
    price_draft_save,
)
from billing.web.price_form import price_form, price_form_read
from portal.integrations.webhooks.publish import events_publish
from tenants.models import AuditEntry, OutboxMessage, PublishedEvent, User
from tenants.platform.errors import Refused
from tests.billing.builders import NOW, PRICES, a_catalogue, a_price_book, a_project
from tests.builders import an_operator
from tests.prices import price_book_publish
from tests.roles import as_owner, as_role, as_system

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _catalogue() -> Iterator[None]:
    with as_system():
        a_catalogue()
    with as_role("portal_ops"):
        yield


def test_a_version_counts_from_its_date_until_the_next() -> None:
    a_price_book(NOW)
    higher = {key: price * 2 for key, price in PRICES.items()}
    later = NOW + timedelta(days=14)
    price_book_publish(actor_id=None, valid_from=later, prices=higher, now=NOW)
    before, after = (
        PriceShelf.read(at).price("h100", "spot", at) for at in (later - timedelta(seconds=1), later)
    )
    assert (before.version, before.per_gpu_hour) == (1, Decimal("1.68"))
    assert (after.version, after.per_gpu_hour) == (2, Decimal("3.36"))
    assert current_prices(NOW)["l40s", "standard"].per_gpu_hour == Decimal("1.05")


@pytest.mark.parametrize(("gpu_class", "tier"), [("h100", "gold"), ("b200", "spot")])
def test_what_has_no_price_is_refused(gpu_class: str, tier: str) -> None:
    a_price_book(NOW)
    with pytest.raises(Refused) as refusal:
        PriceShelf.read(NOW).price(gpu_class, tier, NOW)
    assert refusal.value.code == "no_price"


def test_a_version_that_is_no_longer_in_force_keeps_its_prices() -> None:
    a_price_book(NOW)
    a_price_book(NOW + timedelta(days=1))
    kept = price_at(version=1, gpu_class="h100", tier="standard")
    assert (kept.version, kept.currency, kept.per_gpu_hour) == (1, "EUR", Decimal("4.80"))


def test_without_any_book_there_is_no_price() -> None:
    assert current_prices(NOW) == {}
    with pytest.raises(Refused, match="no_price"):
        PriceShelf.read(NOW).price("h100", "spot", NOW)


@pytest.mark.parametrize(
    ("days", "code"),
    [
        pytest.param(-1, "price_book_past", id="yesterday"),
        pytest.param(0, "price_book_overlaps", id="the very date of the version before"),
        pytest.param(3654, "price_book_far", id="in more than ten years"),
    ],
)
def test_dates_that_do_not_follow_are_refused(days: int, code: str) -> None:
    a_price_book(NOW)
    with pytest.raises(Refused) as refusal:
        price_book_publish(actor_id=None, valid_from=NOW + timedelta(days=days), prices=PRICES, now=NOW)
    assert (refusal.value.code, refusal.value.param) == (code, "valid_from")
    assert PriceBook.objects.count() == 1


@pytest.mark.parametrize("price", ["NaN", "Infinity", "-0.01", "1000000"])
def test_an_impossible_price_is_refused_at_its_field(price: str) -> None:
    prices = {**PRICES, ("h100", "spot"): Decimal(price)}
    with pytest.raises(Refused) as refusal:
        price_book_publish(actor_id=None, valid_from=NOW, prices=prices, now=NOW)
    assert refusal.value.param == "price-h100-spot"


def test_a_book_has_a_price_for_everything_and_nothing_else() -> None:
    lacking = {key: price for key, price in PRICES.items() if key != ("l40s", "spot")}
    for prices in (lacking, {**PRICES, ("b200", "spot"): Decimal(1)}):
        with pytest.raises(Refused, match="price_missing"):
            price_book_publish(actor_id=None, valid_from=NOW, prices=prices, now=NOW)


def test_every_tenant_reads_in_its_audit_that_prices_changed() -> None:
    tenants = {a_project().tenant_id, a_project().tenant_id}
    a_price_book(NOW)
    entries = AuditEntry.objects.filter(action="prices.published")
    # The platform's own log says so, too: at the first version there are no tenants.
    assert {entry.tenant_id for entry in entries} == {*tenants, None}


def a_draft(author: User, **changed: str) -> PriceDraft:
    """A draft of the latest version with other prices, as `h100_spot="2"`."""
    terms = DraftTerms.of_book(PriceBook.objects.first())
    prices = {}
    for name, price in changed.items():
        gpu_class, _, tier = name.partition("_")
        prices[gpu_class, tier] = Decimal(price)
    terms = replace(terms, prices={**terms.prices, **prices})
    return price_draft_create(author_id=author.pk, terms=terms, now=NOW)


def published(by: User, draft: PriceDraft, revision: int = 1) -> PriceBook:
    later = NOW + timedelta(hours=PriceBook.objects.count())
    return price_draft_publish(publisher_id=by.pk, draft_id=draft.id, revision=revision, now=later)


def test_a_draft_counts_in_no_quote_until_a_second_person_has_published_it() -> None:
    a_price_book(NOW - timedelta(days=1))
    ada, bob = an_operator(), an_operator()
    draft = a_draft(ada, h100_spot="2")
    assert current_prices(NOW)["h100", "spot"].per_gpu_hour == Decimal("1.68")
    with pytest.raises(Refused, match="second_person_needed"):
        published(ada, draft)
    with pytest.raises(IntegrityError, match="price_draft_second_person"), transaction.atomic():
        PriceDraft.objects.filter(id=draft.id).update(
            state="published", decided_by=ada, decided_at=NOW, book_id=1
        )
    with pytest.raises(IntegrityError, match="author"), transaction.atomic():
        PriceDraft.objects.filter(id=draft.id).update(author=bob)
    tenant = a_project().tenant_id
    book = published(bob, draft)
    messages = OutboxMessage.objects.filter(tenant=tenant, kind="price_book.published")
    assert events_publish(messages, NOW) == 1
    event = PublishedEvent.objects.get(tenant=tenant)
    assert (event.type, event.data["price_book"]["version"]) == ("price_book.published", 2)
    assert PriceShelf.read(book.valid_from).price("h100", "spot", book.valid_from).per_gpu_hour == Decimal(2)
    with pytest.raises(Refused, match="draft_decided"):
        price_draft_discard(operator_id=bob.pk, draft_id=draft.id, now=NOW)


def test_the_only_operator_publishes_alone_until_there_is_a_second_one() -> None:
    a_price_book(NOW - timedelta(days=1))
    ada = an_operator()
    # Somebody whose account is closed is no second person.
    with as_owner():
        User.objects.filter(id=an_operator().pk).update(is_active=False)
    first, second = a_draft(ada, h100_spot="2"), a_draft(ada, h100_spot="3")
    assert published(ada, first).version == 2
    an_operator()
    with pytest.raises(Refused, match="second_person_needed"):
        published(ada, second)
    with pytest.raises(IntegrityError, match="price_draft_second_person"), transaction.atomic():
        PriceDraft.objects.filter(id=second.id).update(
            state="published", decided_by=ada, decided_at=NOW, book_id=1
        )


def test_a_published_book_never_changes() -> None:
    a_price_book(NOW - timedelta(days=1))
    for change in (
        lambda: PriceBook.objects.update(note="x"),
        lambda: Price.objects.update(per_gpu_hour=1),
        lambda: Price.objects.all().delete(),
    ):
        with (
            as_role("portal_owner"),
            pytest.raises(DatabaseError, match="append"),
            transaction.atomic(),
        ):
            change()


def test_what_was_read_is_what_is_published() -> None:
    a_price_book(NOW - timedelta(days=1))
    ada, bob = an_operator(), an_operator()
    draft = a_draft(ada, h100_spot="2")
    with pytest.raises(Refused, match="not_allowed"):
        price_draft_save(author_id=bob.pk, draft_id=draft.id, terms=DraftTerms.of_draft(draft), now=NOW)
    price_draft_save(author_id=ada.pk, draft_id=draft.id, terms=DraftTerms(PRICES), now=NOW)
    with pytest.raises(Refused, match="draft_changed"):
        published(bob, draft)
    assert published(bob, draft, 2).version == 2


def test_a_rebased_draft_keeps_its_changes_and_takes_the_rest() -> None:
    a_price_book(NOW - timedelta(days=1))
    ada, bob = an_operator(), an_operator()
    mine, other = a_draft(ada, h100_spot="2"), a_draft(bob, h100_standard="6", l40s_spot="1")
    published(ada, other)
    with pytest.raises(Refused, match="draft_outdated"):
        published(bob, mine)
    rebased = price_draft_rebase(author_id=ada.pk, draft_id=mine.id, now=NOW + timedelta(hours=2))
    assert DraftTerms.of_draft(rebased).prices == {
        **PRICES,
        ("h100", "spot"): Decimal(2),
        ("h100", "standard"): Decimal(6),
        ("l40s", "spot"): Decimal(1),
    }
    assert [(each.gpu_class, each.tier) for each in draft_changes(rebased)] == [("h100", "spot")]
    assert published(bob, rebased, 2).version == 3


@pytest.mark.parametrize("units", [8_000, 14_000, 24_000, 28_000, 32_000])
@pytest.mark.parametrize("price", ["0.0001", "0.37", "1.2345", "999.9999"])
def test_slices_of_any_size_cost_exactly_their_price(units: int, price: str) -> None:
    own = Decimal(price)
    current = CurrentPrice(1, "EUR", Decimal(5), Decimal(5), slices={"1g.10gb": (own, 2 * own)})
    for count in (1, 3, 7):
        rate = current.of("1g.10gb", count, count * units).rate(count * units)
        assert (rate.plain, rate.peak) == (count * own, 2 * count * own)
    assert current.of("2g.20gb", 1, units) is current is current.of(None, 1, units)


def test_a_begin_in_the_hour_that_a_clock_change_repeats_stays_as_its_form_is_saved() -> None:
    a_price_book(NOW)
    # 02:30 for the second time that night.
    terms = DraftTerms(PRICES, valid_from=datetime(2029, 10, 28, 1, 30, 20, tzinfo=UTC))
    with timezone.override("Europe/Berlin"):
        form = price_form(terms, {}, None, None)
        fields = [each for row in form.rows for pair in row.pairs for each in pair]
        fields += [form.peak_hours, form.peak_zone, form.valid_from]
        sent = QueryDict(mutable=True)
        sent.update({each.name: each.value for each in fields})
        assert sent["valid_from"] == "2029-10-28T02:30"
        assert price_form_read(sent, {}, terms).valid_from == terms.valid_from
        sent["valid_from"] = "2029-10-28T04:00"
        assert price_form_read(sent, {}, terms).valid_from == datetime(2029, 10, 28, 3, tzinfo=UTC)
