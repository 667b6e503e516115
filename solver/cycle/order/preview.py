"""The place of one more request in a queue that is ordered already, for quotes."""

from collections.abc import Sequence
from copy import copy

from solver.cycle.order.held_guarantees import Whose
from solver.cycle.order.queue import (
    BORROWED,
    INSIDE,
    SPOT,
    BookingQueue,
    Turn,
    Waiter,
    add_demand,
)
from solver.model.inputs import Request

_MOST_REORDERED = 2_000
"""Longest queue that is ordered anew for one more request."""


class QueuePreview(BookingQueue):
    """A queue that is asked where one more request would stand; `turns` comes first."""

    def turns_with(self, request: Request) -> list[Turn] | None:
        """The turns with one more request where it changes the order of the others, computed after
        them; None: where it does not. A request lowers the parts of other owners."""
        if len(self._rows) > _MOST_REORDERED:
            return None
        row = self._waiting(request)
        fair = self._fair_shares_with(row)
        is_same = all(
            under <= fair[band][name][owner] < over
            for (band, name, owner), (under, over) in self._edges.items()
        )
        if is_same:
            return None
        twin = copy(self)
        twin._shares, twin._in_use = self._first_shares.copy(), dict(self._first_in_use)
        twin._uses, twin._edges = dict(self._first_uses), {}
        twin._guarantees = self._guarantees.untouched()
        return twin._ordered([*self._rows, row])

    def place_of(self, request: Request, turns: Sequence[Turn]) -> int:
        """The index at which one more request stands among the turns, computed after them."""
        later = self._shares, self._in_use
        self._shares, self._in_use = self._first_shares.copy(), dict(self._first_in_use)
        row, fair = self._waiting(request), self._fair
        self._fair = self._fair_shares_with(row)
        counts = self._state.quota.tier(request.quota_tier).counts
        left = self._left_ahead(row) if counts else {}
        stays_inside = self._stays_inside(row)
        band = INSIDE if counts else SPOT
        found, key = len(turns), self._key(row, band)
        for at, turn in enumerate(turns):
            if band == INSIDE and (turn.key[0] > band or key < turn.key):
                if stays_inside or (left and all(u <= left[key] for key, u in self._keyed(row))):
                    found = at
                    break
                band, key = BORROWED, self._key(row, BORROWED)
            if key < turn.key:
                found = at
                break
            if turn.request.tenant == request.tenant:
                self._pass_by(turn, request, left)
                key = self._key(row, band)
        self._shares, self._in_use, self._fair = *later, fair
        return found

    def _pass_by(self, turn: Turn, request: Request, left: dict[Whose, int]) -> None:
        """Count a turn of the request's tenant as use, also of what is `left` of guarantees."""
        passed = self._waiting(turn.request)
        for name, units in passed.uses:
            self._count(passed.owners, name, units, passed.seconds)
        for whose, units in self._keyed(passed):
            if turn.inside and whose in left and self._covers(passed, request):
                left[whose] -= units

    def _covers(self, passed: Waiter, request: Request) -> bool:
        """True when, each at its requested start, the first is still there as the other starts."""
        now = self._state.now
        since = max(passed.request.earliest, now)
        return since <= max(request.earliest, now) < since + max(1, passed.seconds)

    def _keyed(self, row: Waiter) -> list[tuple[Whose, int]]:
        """Its units by whose use of a guarantee they are."""
        request, keys = row.request, self._guarantees.use.keys
        return [
            (key, units) for name, units in row.uses for key in keys(request.tenant, name, request.quota_tier)
        ]

    def _left_ahead(self, row: Waiter) -> dict[Whose, int]:
        """Units that are left at its requested start next to what is held, by whose use it is; none where
        there is no guarantee of one of its classes."""
        request = row.request
        if not all(self._guarantees.use.guaranteed(request.tenant, name) for name, _ in row.uses):
            return {}
        starts = max(request.earliest, self._state.now)
        window = (starts, starts + 1)
        return {
            whose: self._guarantees.use.left_of(whose, request.quota_tier, window)
            - self._guarantees.kept_from(request, whose, starts)
            for whose, _ in self._keyed(row)
        }

    def _fair_shares_with(self, row: Waiter) -> dict[int, dict[str, dict[str, int]]]:
        """Parts of owners with one more request, by band. Spot lowers only parts of spot."""
        names = [name for name, _ in row.uses if name in self._limits]
        fair = dict(self._fair)
        counts = self._state.quota.tier(row.request.quota_tier).counts
        for band in (BORROWED, SPOT) if counts else (SPOT,):
            demanded = {name: dict(self._wanted[band].get(name, {})) for name in names}
            add_demand(demanded, row)
            fair[band] = self._fair[band] | self._fair_shares(demanded)
        return fair
