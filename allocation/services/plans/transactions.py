"""The transactions that write a plan: each writes one piece of it, if its input still holds."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from allocation.models import Booking, Decision, DecisionPiece
from allocation.rules.states import TERMINAL
from allocation.services.plans.answers import plan_write
from allocation.services.plans.assignments import (
    Fleet,
    PlanOvertaken,
    PlanStale,
)
from allocation.services.plans.borrowing import BorrowingMark, borrowing_marks_write
from allocation.services.plans.plan_diff import Changes, parts_stale, revisions_of
from allocation.services.publish.live import decided_hint
from solver import (
    CONFLICT,
    ROOM_FREED,
    Assign,
    Extend,
    Group,
    Move,
    Part,
    Parts,
    Plan,
    Refuse,
    Snapshot,
    Waiting,
    in_halves,
    in_pieces,
    narrowed,
    refused_too_early,
    turns_of_tenants,
)
from tenants.platform.database.compiled import Compiled
from tenants.platform.log_ids import log_id

logger = logging.getLogger(__name__)

# Attempts to find the parts that the database refuses; the bookings are locked meanwhile.
MAX_ATTEMPTS = 64
# Bookings that are written, and locked, in one transaction. A larger group stays together.
PIECE_BOOKINGS = 200
Failure = PlanStale | IntegrityError
_FENCE = "SELECT 1 FROM allocation_solverstate WHERE id = 1 AND leader_term = %s FOR UPDATE"


_locked = Compiled(
    lambda _, keys: (
        Booking.objects.select_for_update(of=("self",))
        .select_related("tier")
        .filter(id__in=keys)
        .order_by("id")
    )
)


def plan_apply(
    *,
    changes: Changes,
    snapshot: Snapshot,
    decision: Decision,
    now: datetime,
    is_last: bool = True,
) -> dict[Part, str]:
    """Writes the decision and every part that still holds; returns the withheld parts, and why.

    Parts whose bookings have changed are withheld, with the parts that need them, and so are parts
    that the database refuses. The decision records what was withheld. Unless `is_last`, refusals
    that may be outdated are withheld too, and decided again.

    A large plan is written in several transactions; parts that need each other stay together. What
    somebody waits for goes first, by turns of the tenants. What a process that is killed has not
    written is decided again.

    Raises:
        PlanOvertaken: another process leads.
        PlanStale, IntegrityError: no part can be written, and none is.
    """
    parts = Parts(changes.plan, snapshot)
    pieces = _pieces(changes, parts, snapshot)
    decision.pieces = len(pieces)
    writing = _Writing(changes.plan, snapshot, decision, now, is_last=is_last)
    withheld: dict[Part, str] = {}
    failure: Failure | None = None
    term = decision.leader_term
    for number, piece in enumerate(pieces, start=1):
        before = decision.pk
        try:
            withheld |= _piece_write(replace(writing, number=number), piece, parts, term)
        except PlanOvertaken:
            if not before:
                raise
            logger.info("Another cycle leads; written: %s of %s pieces", number - 1, len(pieces))
            break
        except (PlanStale, IntegrityError) as error:
            failure, decision.pk = error, before
            own = error.withheld if isinstance(error, PlanStale) else {}
            withheld |= own or dict.fromkeys(piece.parts, CONFLICT)
    if failure is not None and not decision.pk:
        raise _nothing_written(failure, withheld)
    return withheld


def leads(term: int) -> bool:
    """Returns whether no other process has led since this turn began, and locks that until the end
    of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute(_FENCE, [term])
        return cursor.fetchone() is not None


def _nothing_written(failure: Failure, withheld: Mapping[Part, str]) -> Failure:
    """Returns the last failure, with what all pieces withheld."""
    if isinstance(failure, PlanStale) and failure.withheld:
        return PlanStale(str(failure), withheld)
    return failure


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is written in one transaction."""

    groups: tuple[Group, ...]
    marks: tuple[BorrowingMark, ...] = ()

    @property
    def parts(self) -> frozenset[Part]:
        return frozenset(part for group in self.groups for part in group)


def _pieces(changes: Changes, parts: Parts, snapshot: Snapshot) -> list[_Piece]:
    """Returns the groups of parts, and the marks, in pieces: first what somebody waits for, then
    planned starts that moved."""
    positions = turns_of_tenants(changes.plan, snapshot)
    marks = {str(mark.booking): mark for mark in changes.marks}
    found = in_pieces(parts.groups(), positions, marks, PIECE_BOOKINGS)
    pieces = [
        _Piece(groups, tuple(marks[name] for name in sorted(names & marks.keys()))) for groups, names in found
    ]
    return pieces or [_Piece(())]


def _piece_write(writing: "_Writing", piece: _Piece, parts: Parts, term: int) -> dict[Part, str]:
    """Writes a piece in its own transaction. Raises as `plan_apply`; then nothing is written."""
    snapshot, now = writing.snapshot, writing.now
    plan = narrowed(writing.plan, piece.parts)
    changes = Changes(plan, piece.marks)
    with transaction.atomic():
        if not leads(term):
            raise PlanOvertaken("another cycle leads now")
        bookings = _bookings_locked(changes, now)
        gone = parts_stale(changes, bookings, revisions_of(snapshot), now)
        if not writing.is_last:
            gone |= _too_early(plan, snapshot)
        withheld = parts.withheld(gone)
        if piece.parts and piece.parts <= withheld.keys():
            raise PlanStale("nothing of it can be written", withheld)
        groups = [kept for group in piece.groups if (kept := _without(group, withheld))]
        withheld |= writing.write(groups, withheld, bookings)
        _marks(changes, withheld, now)
        decided_hint()
    return withheld


def _without(group: Sequence[Part], withheld: Mapping[Part, str]) -> tuple[Part, ...]:
    return tuple(part for part in group if part not in withheld)


def _too_early(plan: Plan, snapshot: Snapshot) -> dict[Part, str]:
    """Returns refusals of bookings that might fit now, because others have ended meanwhile."""
    if not plan.refusals and all(each.granted for each in plan.extensions):
        return {}
    here = {each.booking for each in snapshot.requests}
    here |= {each.booking for each in snapshot.held if not each.started and each.tenant}
    over = Booking.objects.filter(id__in=here, state__in=TERMINAL).values_list("id", flat=True)
    left = {str(booking) for booking in over}
    return dict.fromkeys(refused_too_early(plan, snapshot, left), ROOM_FREED)


def _marks(changes: Changes, withheld: Mapping[Part, str], now: datetime) -> None:
    """Writes the borrowing marks of bookings without a withheld part."""
    names = {name for _, name in withheld}
    marks = (mark for mark in changes.marks if str(mark.booking) not in names)
    borrowing_marks_write(marks, now)


@dataclass(frozen=True, slots=True)
class _Writing:
    """A plan that is being written, in transactions that hold the bookings of a piece."""

    plan: Plan
    snapshot: Snapshot
    decision: Decision
    now: datetime
    is_last: bool = True
    number: int = 1

    def write(
        self,
        groups: Sequence[Group],
        withheld: Mapping[Part, str],
        bookings: Mapping[str, Booking],
    ) -> dict[Part, str]:
        """Writes the decision and groups of parts that need each other; returns the refused parts.

        If the database refuses something, halves are tried and rolled back to find it.

        Raises:
            PlanStale, IntegrityError: none can be written.
        """
        if self._attempt(groups, withheld, bookings) is None:
            return {}
        failed, error = self._refused_groups(groups)
        refused = dict.fromkeys((part for group in failed for part in group), CONFLICT)
        if error is None:
            rest = [group for group in groups if group not in failed]
            error = self._attempt(rest, {**withheld, **refused})
        if error is not None:
            raise error
        return refused

    def _refused_groups(self, groups: Sequence[Group]) -> tuple[list[Group], Failure | None]:
        before = self.decision.pk
        with transaction.atomic():
            found: tuple[list[Group], Failure | None]
            found = in_halves(groups, self._trial, MAX_ATTEMPTS)
            transaction.set_rollback(True)
        self.decision.pk = before
        return found

    def _trial(self, groups: Sequence[Group]) -> Failure | None:
        return self._attempt(groups, {})

    def _attempt(
        self,
        groups: Sequence[Group],
        withheld: Mapping[Part, str],
        bookings: Mapping[str, Booking] | None = None,
    ) -> Failure | None:
        """Writes the groups in a savepoint. An attempt changes the bookings it has read."""
        plan = narrowed(self.plan, {part for group in groups for part in group})
        found = _bookings(plan, (), self.now) if bookings is None else bookings
        fleet = Fleet.read(self.snapshot, plan, self.now)
        before = self.decision.pk
        try:
            with transaction.atomic():
                self._record([[*part, why] for part, why in sorted(withheld.items())])
                plan_write(plan, found, fleet, self.decision, self.now)
        except (PlanStale, IntegrityError) as failure:
            logger.info("Part of the plan can't be written: %s", failure)
            self.decision.pk = before
            return failure
        return None

    def _record(self, withheld: list[list[str]]) -> None:
        """Writes the decision with its first piece, and the number of a piece of several."""
        decision = self.decision
        if not decision.pk:
            decision.withheld = withheld
            decision.save(force_insert=True)
            log_id(decision=decision.id)
        if decision.pieces > 1:
            piece = DecisionPiece(decision=decision, number=self.number, withheld=withheld)
            # It is there if halves of the piece are tried.
            DecisionPiece.objects.bulk_create([piece], ignore_conflicts=True)


def _bookings_locked(changes: Changes, now: datetime) -> dict[str, Booking]:
    """Returns all bookings that change, locked in the order that reports use too."""
    return _bookings(changes.plan, [mark.booking for mark in changes.marks], now)


def _bookings(plan: Plan, more: Iterable[UUID], now: datetime) -> dict[str, Booking]:
    answers: tuple[Assign | Waiting | Refuse | Extend | Move, ...]
    answers = (*plan.assigns, *plan.waits, *plan.refusals, *plan.extensions, *plan.moves)
    names = (
        {each.booking for each in answers}
        | {each.booking for each in plan.changes}
        | set(plan.withdrawn)
        | set(map(str, more))
    )
    names |= {name for pause in plan.pauses for name in (pause.booking, pause.beneficiary)}
    return {str(row.id): row for row in (_locked(now, names) if names else ())}
