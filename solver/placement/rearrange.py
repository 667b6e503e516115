"""The cheapest moves in a small neighbourhood after which a demand fits, by branch and bound.

At first everything stays. The demand is put somewhere, what is in its way has to move, and so does
what is in the way of that. What has to move does not come home in this branch, because what took
its home stays there. The effort is counted in choices, so the same input gives the same answer on
every machine.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from solver.fleet.pool import Pool
from solver.model.demand import Demand
from solver.model.inputs import SLOTS_PER_GPU, Place, Together
from solver.model.ordering import place_order
from solver.model.sites.where import Where
from solver.timeline.host_calendar import Free

MOST_CHOICES = 20_000
"""Places that are tried, at about 20 microseconds each."""

Window = tuple[int, int]
IsFree = Callable[[Place, Window], bool]
"""True when no fixed work takes the place at any instant of [starts, ends)."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A slice or GPU that may move, in the same shape, for `cost` (more than zero); needed in
    `window`.

    Members of one `gang` stay together at its `level`. Each needs `host_resources` of its node:
    cores (thousandths) and memory (MiB). `where`: on such nodes only.
    """

    place: Place
    cost: int
    window: Window
    gang: str
    level: Together = "any"
    host_resources: tuple[int, int] = (0, 0)
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The columns to examine. `free`: what the nodes have in a window next to fixed work; None:
    hosts do not matter."""

    pool: Pool
    columns: tuple[int, ...]
    is_free: IsFree
    free: Callable[[Window], Free] | None = None


@dataclass(frozen=True, slots=True)
class Rearranged:
    """The demand's places once all moves of `ends` are made; `cost` is the sum of the moves.

    `proven`: nothing cheaper exists among the examined columns.
    """

    places: tuple[Place, ...]
    ends: tuple[tuple[Movable, Place], ...]
    cost: int
    proven: bool

    @property
    def moves(self) -> tuple[tuple[Place, Place], ...]:
        """(from, to) of those that move."""
        return tuple((item.place, place) for item, place in self.ends if place != item.place)


def rearrange(
    near: Neighbourhood,
    demand: Demand,
    starts: int,
    movable: Sequence[Movable],
    most_choices: int = MOST_CHOICES,
) -> Rearranged | None:
    """The cheapest rearrangement after which the demand fits from `starts` on; None: none found.

    ValueError: a movable piece is outside the neighbourhood.
    """
    if any(near.pool.column[item.place.gpu] not in near.columns for item in movable):
        raise ValueError("a movable piece is outside the neighbourhood")
    items = sorted(movable, key=lambda each: (place_order(each.place), each.window))
    window = (starts, starts + demand.duration)
    nowhere = Place("", demand.profile, 0, 0)
    member = Movable(nowhere, 0, window, "", demand.level, demand.host_resources, demand.where)
    search = _Search(near, [*[member] * demand.count, *items], demand.count, most_choices)
    if not search.is_too_much():
        search.step()
    if search.best is None:
        return None
    goes, ends = search.best[: demand.count], search.best[demand.count :]
    return Rearranged(
        places=tuple(sorted(goes, key=place_order)),
        ends=tuple(zip(items, ends, strict=True)),
        cost=search.best_cost,
        proven=search.left > 0,
    )


@dataclass(frozen=True, slots=True)
class _Spot:
    """A possible place, with its column and bits."""

    place: Place
    column: int
    mask: int


@dataclass(eq=False, slots=True)
class _Piece:
    """A piece of the search, at one of `spots`; `spot` None: it has to get one.

    `home`: where it was. `is_put`: it has its last one. `least`: the number of the first one that is tried.
    """

    item: Movable
    number: int
    spots: list[_Spot]
    home: _Spot | None
    starts: int
    ends: int
    spot: _Spot | None = None
    is_put: bool = False
    least: int = 0

    def meets(self, window: Window) -> bool:
        """True when it is needed at some instant of the window."""
        return self.starts < window[1] and window[0] < self.ends


_Choice = tuple[int, int, list[_Piece]]
"""The cost of what moves for it, the number of the spot, and what moves for it."""


class _Search:
    """A depth-first search that keeps the cheapest arrangement found."""

    def __init__(self, near: Neighbourhood, items: Sequence[Movable], goes: int, left: int) -> None:
        """The first `goes` pieces are the demand; all others are at home."""
        self.left = left
        """Choices that are left."""
        self.best: list[Place] | None = None
        self.best_cost = 0
        self._near, self._goes, self._cost = near, goes, 0
        self._free: dict[tuple[str | None, Window, Where | None], list[_Spot]] = {}
        self._loose: Together | None = None if near.pool.has_zones else "any"
        """The level at which a gang has no group that binds it."""
        self._pieces = [self._piece(number, item) for number, item in enumerate(items)]
        self._groups = {item.level: near.pool.groups(item.level).tolist() for item in items}
        self._group: dict[str, int] = {}
        self._here: dict[int, list[tuple[_Piece, int]]] = {column: [] for column in near.columns}
        for piece in self._pieces:
            if piece.home is not None:
                self._locate(piece, piece.home)

    def is_too_much(self) -> bool:
        """True when the pieces of some instant have more bits than their possible places."""
        for window in pairwise(sorted({each for piece in self._pieces for each in piece.item.window})):
            room, needed = dict.fromkeys(self._near.columns, 0), 0
            for piece in self._pieces:
                if not piece.meets(window):
                    continue
                if not piece.spots:
                    return True
                needed += piece.spots[0].mask.bit_count()
                for spot in piece.spots:
                    room[spot.column] |= spot.mask
            if needed > sum(bits.bit_count() for bits in room.values()):
                return True
        return False

    def step(self) -> None:
        """Give the next piece without a place each of its places, and search on from there."""
        missing = [piece for piece in self._pieces if piece.spot is None]
        if not missing:
            self._settle()
            return
        piece, choices = self._most_bound(missing)
        for cost, at, displaced in choices:
            if self.left <= 0 or self._is_worse(cost):
                return
            self.left -= 1
            for each in displaced:
                self._displace(each)
            self._put(piece, at)
            for each in displaced:
                self._restore(each)

    def _put(self, piece: _Piece, at: int) -> None:
        """Search on with the piece at this spot."""
        gang, is_bound = piece.item.gang, piece.item.gang in self._group
        self._locate(piece, piece.spots[at])
        piece.is_put = True
        # Members of the demand are alike, so only one order of them is examined.
        if piece.number + 1 < self._goes:
            self._pieces[piece.number + 1].least = at + 1
        if piece.item.level != self._loose:
            self._group[gang] = self._groups[piece.item.level][piece.spots[at].column]
        self.step()
        if not is_bound:
            self._group.pop(gang, None)
        piece.is_put = False
        self._remove(piece)

    def _most_bound(self, missing: list[_Piece]) -> tuple[_Piece, list[_Choice]]:
        """The demand first, then what has the fewest places left; with its choices, cheapest first."""
        piece, choices = missing[0], self._choices(missing[0])
        if piece.number >= self._goes:
            for each in missing[1:]:
                if not choices:
                    break
                found = self._choices(each)
                if len(found) < len(choices):
                    piece, choices = each, found
        choices.sort(key=lambda choice: choice[:2])
        return piece, choices

    def _settle(self) -> None:
        """All have a place: keep the arrangement, or have somebody move whose node gives too much."""
        crowded = self._crowded()
        if crowded is None:
            self.best = [piece.spot.place for piece in self._pieces if piece.spot is not None]
            self.best_cost = self._cost
            return
        for each in sorted(crowded, key=lambda piece: (piece.item.cost, piece.number)):
            if self.left <= 0 or self._is_worse(each.item.cost):
                return
            self.left -= 1
            self._displace(each)
            self.step()
            self._restore(each)

    def _is_worse(self, more: int) -> bool:
        return self.best is not None and self._cost + more >= self.best_cost

    def _choices(self, piece: _Piece) -> list[_Choice]:
        """Spots next to what has been put, with what they displace and its cost."""
        found: list[_Choice] = []
        starts, ends, level = piece.starts, piece.ends, piece.item.level
        groups, group = self._groups[level], self._group.get(piece.item.gang)
        for at in range(piece.least, len(piece.spots)):
            spot = piece.spots[at]
            if spot is piece.home or (group is not None and groups[spot.column] != group):
                continue
            displaced: list[_Piece] = []
            for each, taken in self._here[spot.column]:
                if taken & spot.mask and each.starts < ends and starts < each.ends:
                    if each.is_put:
                        break
                    displaced.append(each)
            else:
                if group is None and level != self._loose and piece.home is not None:
                    displaced += self._followers(piece, groups, groups[spot.column], displaced)
                found.append((sum(each.item.cost for each in displaced), at, displaced))
        return found

    def _followers(
        self, piece: _Piece, groups: Sequence[int], group: int, besides: list[_Piece]
    ) -> list[_Piece]:
        """Members of the gang that have to follow it into the group."""
        return [
            each
            for each in self._pieces[self._goes :]
            if each.item.gang == piece.item.gang
            and each.spot is not None
            and each not in besides
            and groups[each.spot.column] != group
        ]

    def _crowded(self) -> list[_Piece] | None:
        """Pieces at home on a node that gives more cores or memory than it has; None: no node does."""
        if self._near.free is None:
            return None
        users: dict[int, list[_Piece]] = {}
        for piece in self._pieces:
            if any(piece.item.host_resources) and piece.spot is not None:
                users.setdefault(int(self._near.pool.node_of[piece.spot.column]), []).append(piece)
        for node, mine in sorted(users.items()):
            if any(piece.is_put for piece in mine):
                over = _over(node, mine, self._near.free)
                if over is not None:
                    return [piece for piece in over if not piece.is_put]
        return None

    def _piece(self, number: int, item: Movable) -> _Piece:
        """A piece that may always stay at home."""
        key = (item.place.profile, item.window, item.where)
        if key not in self._free:
            self._free[key] = [
                self._spot(place)
                for column in self._near.columns
                if self._near.pool.allowed((), item.where)[column]
                for place in _places(self._near.pool, column, item.place.profile)
                if self._near.is_free(place, item.window)
            ]
        spots, home = self._free[key], None
        if number >= self._goes:
            home = next((spot for spot in spots if spot.place == item.place), None)
            if home is None:
                home = self._spot(item.place)
                spots = [*spots, home]
        return _Piece(item, number, spots, home, *item.window)

    def _spot(self, place: Place) -> _Spot:
        return _Spot(place, self._near.pool.column[place.gpu], self._near.pool.mask_of(place))

    def _locate(self, piece: _Piece, spot: _Spot) -> None:
        piece.spot = spot
        self._here[spot.column].append((piece, spot.mask))

    def _remove(self, piece: _Piece) -> None:
        if piece.spot is not None:
            self._here[piece.spot.column].remove((piece, piece.spot.mask))
            piece.spot = None

    def _displace(self, piece: _Piece) -> None:
        self._remove(piece)
        self._cost += piece.item.cost

    def _restore(self, piece: _Piece) -> None:
        self._cost -= piece.item.cost
        if piece.home is not None:
            self._locate(piece, piece.home)


def _places(pool: Pool, column: int, profile: str | None) -> Iterator[Place]:
    if not pool.eligible(profile)[column]:
        return
    gpu = pool.gpus[column].id
    if profile is None:
        yield Place(gpu, None, 0, SLOTS_PER_GPU)
        return
    for spot in pool.geometries[column].places(profile):
        yield replace(spot, gpu=gpu)


def _over(node: int, pieces: Sequence[_Piece], free: Callable[[Window], Free]) -> list[_Piece] | None:
    """Those that together need more of the node than it has at some instant; None: never."""
    for window in pairwise(sorted({each for piece in pieces for each in piece.item.window})):
        now = [piece for piece in pieces if piece.meets(window)]
        has = free(window)
        for at, most in enumerate((has.cores, has.memory)):
            if sum(piece.item.host_resources[at] for piece in now) > int(most[node]):
                return now
    return None
