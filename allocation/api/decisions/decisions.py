"""Decisions over REST: what each changed for the caller's bookings, and replays of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_booking
from allocation.api.operators import OperatorView
from allocation.models import Booking, DecisionReplay
from allocation.queries.bookings.holders import Holder, holders_of
from allocation.queries.decisions.decisions import (
    ChangedBooking,
    DecisionFacts,
    ReplayFacts,
    changed_bookings,
    decision_facts,
    decisions_latest,
    replay_latest,
)
from allocation.services.decide.replays import replay_by_operator, replay_request
from allocation.words.reasons import reason_shown
from tenants.access import Actor
from tenants.api.base import list_response
from tenants.platform.costly import costly
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import tenant_tx
from tenants.rules.operator_roles import Area

STATES = ["waiting", "running", *DecisionReplay.Outcome.values]


class DecisionsQuery(Strict):
    """The page of the list, and a booking."""

    booking = Text(required=False, max_length=40, help_text="Only decisions that changed this booking.")
    before = serializers.IntegerField(
        required=False, min_value=1, max_value=2**62, help_text="`next` of the page before."
    )
    limit = serializers.IntegerField(required=False, default=50, min_value=1, max_value=200)


class DecisionRowOut(serializers.Serializer[Any]):
    """A decision in the list."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    policy = serializers.IntegerField(help_text="Number of the policy's version.")
    software = serializers.CharField(help_text="Commit of the code, versions of its libraries.")
    solve_ms = serializers.IntegerField()
    snapshot_sha256 = serializers.CharField(help_text="Digest of the input.")
    plan_sha256 = serializers.CharField(help_text="Digest of the plan.")
    archived_in = serializers.CharField(
        help_text="Archive file of its documents; empty while they are in the database."
    )
    changed = serializers.IntegerField(help_text="Bookings of the caller that it changed.")


class DecisionEventOut(serializers.Serializer[Any]):
    """A line of a booking's history that the decision caused."""

    kind = serializers.CharField()
    sentence = serializers.CharField(source="text")
    starts = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)


class DecisionHolderOut(serializers.Serializer[Any]):
    """A booking in the way."""

    booking = serializers.CharField(
        source="label", help_text="Its number. Empty if it is another organisation's."
    )
    own = serializers.BooleanField(source="is_own")
    gpus = serializers.IntegerField()
    until = serializers.DateTimeField()


class DecisionBookingOut(serializers.Serializer[Any]):
    """What the decision changed for one booking."""

    booking = serializers.CharField()
    tenant = serializers.CharField()
    owner = serializers.CharField()
    state = serializers.CharField(help_text="The present state.")
    latest = serializers.BooleanField(help_text="No later decision has planned the booking.")
    events = DecisionEventOut(many=True)
    reasons = serializers.ListField(
        child=serializers.DictField(), help_text="Why it does not start; only of its latest plan."
    )
    holders = DecisionHolderOut(many=True)


class ReplayOut(serializers.Serializer[Any]):
    """A replay of a decision."""

    id = serializers.UUIDField()
    decision = serializers.IntegerField()
    state = serializers.ChoiceField(choices=STATES)
    asked_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(help_text="What is wrong, if anything.")
    comparison = serializers.CharField(help_text="`bytes`, or `meaning` for old plans.")
    snapshot_sha256 = serializers.CharField()
    plan_sha256 = serializers.CharField()
    software = serializers.CharField(help_text="The code that replayed it.")
    took_ms = serializers.IntegerField()
    nightly = serializers.BooleanField(source="is_nightly")


class DecisionOut(DecisionRowOut):
    """A decision."""

    bookings = DecisionBookingOut(many=True, help_text="The first hundred by number.")
    replay = ReplayOut(allow_null=True, help_text="The newest replay.")


class _DecisionView(OperatorView):
    """Reads as the caller may: operators all tenants, members their own bookings."""

    area = Area.BOOKINGS

    @contextmanager
    def read_tx(self) -> Iterator[Actor | None]:
        if self.is_for_operator():
            with self.operator_tx():
                yield None
        else:
            with self.tx():
                yield self.actor


class Decisions(_DecisionView):
    """Decisions that changed bookings of the caller."""

    queries = {"GET": DecisionsQuery}

    @described(
        "list_decisions",
        "List the decisions that changed bookings you may see",
        answer=page(DecisionRowOut),
        query=DecisionsQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns the newest first; `next` is the value of `before` for the next page."""
        limit = self.query["limit"]
        with self.tx():
            only = [access_booking(self.actor, self.query["booking"]).id] if ("booking" in self.query) else []
            found = decisions_latest(
                self.actor, most=limit + 1, before=self.query.get("before"), bookings=only
            )
            rows = [
                _row(facts, count) for number, count in found[:limit] if (facts := decision_facts(number))
            ]
        following = str(found[limit - 1][0]) if len(found) > limit else None
        return list_response(DecisionRowOut(rows, many=True).data, following)


@costly("decision")
class DecisionOne(_DecisionView):
    """One decision."""

    @described("get_decision", "Read what a decision changed and why", answer=DecisionOut)
    def get(self, request: Request, number: int) -> Response:
        """Returns the decision with the bookings that the caller may see. A decision that changed
        none of them is missing."""
        with self.read_tx() as actor:
            facts, total, lines = _found(number, actor)
            shown = _row(facts, total) | {
                "bookings": [_line(each, number, self.now) for each in lines],
                "replay": replay_latest(number),
            }
            return Response(DecisionOut(shown).data)


class DecisionReplays(_DecisionView):
    """Replays of a decision."""

    area = Area.BOOKINGS

    @described("get_decision_replay", "Read the newest replay of a decision", answer=ReplayOut)
    def get(self, request: Request, number: int) -> Response:
        """Returns its state; `same` proves that the decision follows from its stored input."""
        with self.read_tx() as actor:
            _found(number, actor)
            replay = replay_latest(number)
            if replay is None:
                raise missing("replay")
            return Response(ReplayOut(replay).data)

    @described("act_replay_decision", "Replay a decision", answer=ReplayOut, status=202)
    def post(self, request: Request, number: int) -> HttpResponseBase:
        """Asks for a replay, or returns the one that waits or runs. Read its state by `GET`."""

        def ask() -> ReplayFacts:
            return replay_request(person_id=self.user.pk, number=number, now=self.now)

        if self.is_for_operator():
            return self.operate(
                lambda: replay_by_operator(operator=self.user, number=number, now=self.now),
                ReplayOut,
                202,
            )

        def run() -> Response:
            _found(number, self.actor)
            return Response(ReplayOut(ask()).data, status=202)

        return self.once(run)


def _found(number: int, actor: Actor | None) -> tuple[DecisionFacts, int, tuple[ChangedBooking, ...]]:
    """The decision and what it changed. Raises Refused `not_found`."""
    facts = decision_facts(number)
    if facts is None:
        raise missing("decision")
    changed = changed_bookings(number, actor)
    if actor is not None and not changed.total:
        raise missing("decision")
    return facts, changed.total, changed.lines


def _row(facts: DecisionFacts, changed: int) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in facts.__slots__} | {"changed": changed}


def _line(changed: ChangedBooking, number: int, now: datetime) -> dict[str, Any]:
    booking = changed.booking
    is_latest = booking.decision_id == number
    return {
        "booking": booking.label,
        "tenant": booking.tenant.slug,
        "owner": booking.owner.username,
        "state": booking.state,
        "latest": is_latest,
        "events": changed.events,
        "reasons": [reason_shown(each, booking.ask) for each in booking.reasons] if is_latest else [],
        "holders": _holders(booking, now) if is_latest else [],
    }


def _holders(booking: Booking, now: datetime) -> list[Holder]:
    # Nested in an operator's transaction it reads as the booking's tenant.
    with tenant_tx(booking.tenant_id):
        return holders_of(booking, now)
