"""Drafts of price books: an operator writes one, and another operator publishes it."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.queries.bookings.money.price_effect import last_month, price_effect
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.words.refusals import refusal_text
from billing.api.prices import (
    PeakHoursOut,
    PriceBookNew,
    PriceBookOut,
    PriceOut,
    SetupFeeOut,
    book_shown,
    content_shown,
    draft_terms,
)
from billing.models import PriceDraft
from billing.price_books import currency_latest
from billing.services import (
    DraftTerms,
    draft_changes,
    is_outdated,
    price_draft_create,
    price_draft_discard,
    price_draft_publish,
    price_draft_rebase,
    price_draft_save,
)
from tenants.api.base import list_response
from tenants.platform.costly import costly
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Strict, Whole
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class PriceChangeOut(serializers.Serializer[Any]):
    """A price that a draft changes. Null: there was, or will be, none."""

    gpu_class = serializers.CharField()
    tier = serializers.CharField()
    profile = serializers.CharField(help_text="Of slices; empty: a whole GPU.")
    is_peak = serializers.BooleanField()
    is_setup = serializers.BooleanField(help_text="The set-up fee of the tier, without a class.")
    old = serializers.DecimalField(max_digits=12, decimal_places=4, allow_null=True)
    new = serializers.DecimalField(max_digits=12, decimal_places=4, allow_null=True)


class PriceDraftOut(serializers.Serializer[Any]):
    """A draft of the next price book. No quote reads it."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(choices=PriceDraft.State.values)
    author = serializers.CharField()
    revision = serializers.IntegerField(help_text="Send it to publish exactly this.")
    base_version = serializers.IntegerField(allow_null=True)
    is_outdated = serializers.BooleanField(help_text="Whether it has to be rebased.")
    valid_from = serializers.DateTimeField(allow_null=True, help_text="Null: its publication.")
    note = serializers.CharField()
    changed_at = serializers.DateTimeField()
    decided_by = serializers.CharField(allow_null=True)
    decided_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField(allow_null=True, help_text="The version that it became.")
    peak_hours = PeakHoursOut(allow_null=True)
    prices = PriceOut(many=True)
    setup_fees = SetupFeeOut(many=True)
    changes = PriceChangeOut(many=True)


class ProjectEffectOut(serializers.Serializer[Any]):
    """A project's bill of the month, and at the prices of the draft."""

    tenant = serializers.CharField()
    project = serializers.CharField()
    old = serializers.DecimalField(max_digits=20, decimal_places=6)
    new = serializers.DecimalField(max_digits=20, decimal_places=6)


class PriceEffectOut(serializers.Serializer[Any]):
    """What last month would have cost at the prices of a draft."""

    month = serializers.DateField(source="month.starts", format="%Y-%m", help_text="`2026-11`.")
    charges = serializers.IntegerField()
    unpriced = serializers.IntegerField(help_text="Charges without a price in the draft.")
    old = serializers.DecimalField(max_digits=20, decimal_places=6)
    new = serializers.DecimalField(max_digits=20, decimal_places=6)
    projects = ProjectEffectOut(many=True)


class Publication(Strict):
    """The revision that the publisher has read."""

    revision = Whole(min_value=1)


class PriceDrafts(OperatorView):
    """Drafts, the latest first."""

    area = Area.MONEY
    queries = {"GET": PageQuery}

    @described(
        "list_price_drafts",
        "Drafts of price books (operators)",
        answer=page(PriceDraftOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists drafts, the latest change first."""
        with self.operator_tx():
            rows = PriceDraft.objects.select_related("author", "base", "decided_by")
            drafts, next_cursor = page_of(
                rows, keys=("-changed_at", "id"), query=self.query, scope="price-drafts"
            )
            return list_response((_shown(draft) for draft in drafts), next_cursor)

    @described(
        "create_price_draft",
        "Write a draft of the next price book (operators)",
        answer=PriceDraftOut,
        status=201,
        request=PriceBookNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Writes a draft, which another operator publishes."""
        terms = draft_terms(self.sent(PriceBookNew))

        def work() -> dict[str, Any]:
            profiles_check(terms)
            author = self.actor.user_id
            return _shown(price_draft_create(author_id=author, terms=terms, now=self.now))

        return self.operate(work, PriceDraftOut, status=201)


class PriceDraftOne(OperatorView):
    """One draft."""

    area = Area.MONEY

    @described("get_price_draft", "A draft of a price book (operators)", answer=PriceDraftOut)
    def get(self, request: Request, draft_id: UUID) -> Response:
        """Describes the draft with its changes."""
        with self.operator_tx():
            return Response(PriceDraftOut(_shown(_draft(draft_id))).data)

    @described(
        "change_price_draft",
        "Change a draft (its author)",
        answer=PriceDraftOut,
        request=PriceBookNew,
    )
    def put(self, request: Request, draft_id: UUID) -> HttpResponseBase:
        """Replaces what the draft says."""
        terms = draft_terms(self.sent(PriceBookNew))

        def work() -> dict[str, Any]:
            profiles_check(terms)
            author = self.actor.user_id
            return _shown(price_draft_save(author_id=author, draft_id=draft_id, terms=terms, now=self.now))

        return self.operate(work, PriceDraftOut)


@costly("preview", "GET", "HEAD", "POST")
class PriceDraftEffect(OperatorView):
    """The effect of a draft."""

    area = Area.MONEY

    @described(
        "get_price_draft_effect",
        "What last month would have cost at the prices of a draft (operators)",
        answer=PriceEffectOut,
    )
    def get(self, request: Request, draft_id: UUID) -> Response:
        """Recomputes last month's charges at the prices of the draft, by project."""
        with self.operator_tx():
            terms = DraftTerms.of_draft(_draft(draft_id))
            prices = terms.current(currency_latest())
            return Response(PriceEffectOut(price_effect(prices, last_month(self.now))).data)


class PriceDraftRebase(OperatorView):
    """Bringing a draft onto the latest version."""

    area = Area.MONEY

    @described("rebase_price_draft", "Rebase a draft (its author)", answer=PriceDraftOut)
    def post(self, request: Request, draft_id: UUID) -> HttpResponseBase:
        """Keeps what the draft changes, and takes the rest from the latest version."""

        def work() -> dict[str, Any]:
            author = self.actor.user_id
            return _shown(price_draft_rebase(author_id=author, draft_id=draft_id, now=self.now))

        return self.operate(work, PriceDraftOut)


class PriceDraftDiscard(OperatorView):
    """The end of a draft that is not wanted."""

    area = Area.MONEY

    @described("discard_price_draft", "Discard a draft (operators)", answer=PriceDraftOut)
    def post(self, request: Request, draft_id: UUID) -> HttpResponseBase:
        """Discards the draft."""

        def work() -> dict[str, Any]:
            operator = self.actor.user_id
            return _shown(price_draft_discard(operator_id=operator, draft_id=draft_id, now=self.now))

        return self.operate(work, PriceDraftOut)


class PriceDraftPublish(OperatorView):
    """The publication of a draft."""

    area = Area.MONEY

    @described(
        "publish_price_draft",
        "Publish a draft that another operator wrote (operators)",
        answer=PriceBookOut,
        request=Publication,
        status=201,
    )
    def post(self, request: Request, draft_id: UUID) -> HttpResponseBase:
        """Publishes the draft as the next version."""
        revision = self.sent(Publication)["revision"]

        def work() -> dict[str, Any]:
            operator = self.actor.user_id
            book = price_draft_publish(
                publisher_id=operator, draft_id=draft_id, revision=revision, now=self.now
            )
            return book_shown(book)

        return self.operate(work, PriceBookOut, status=201)


def profiles_check(terms: DraftTerms) -> None:
    """Raises Refused `unknown_profile` for prices of slices that no model of the class has."""
    known = {each.slug: each.profiles for each in ask_catalogue().every_class}
    for gpu_class, _, profile in sorted(terms.slices):
        if profile not in known.get(gpu_class, ()):
            names = ", ".join(known.get(gpu_class, ())) or "none"
            sentence = refusal_text("unknown_profile", gpu_class=gpu_class, profile=profile, names=names)
            raise invalid("unknown_profile", sentence, "prices")


def _draft(draft_id: UUID) -> PriceDraft:
    rows = PriceDraft.objects.select_related("author", "base", "decided_by")
    draft = rows.filter(id=draft_id).first()
    if draft is None:
        raise missing("draft")
    return draft


def _shown(draft: PriceDraft) -> dict[str, Any]:
    shown = {
        name: getattr(draft, name)
        for name in ("id", "state", "revision", "valid_from", "note", "changed_at", "decided_at")
    }
    return {
        **shown,
        "author": draft.author.username,
        "base_version": draft.base_id,
        "is_outdated": draft.state == PriceDraft.State.OPEN and is_outdated(draft),
        "decided_by": draft.decided_by.username if draft.decided_by else None,
        "version": draft.book_id,
        "changes": draft_changes(draft),
        **content_shown(DraftTerms.of_draft(draft)),
    }
