"""A request's demand on one class, and a fit for it."""

from dataclasses import dataclass, replace

from solver.model.inputs import Ask, Held, Place, Request, Shape, Together
from solver.model.sites.where import ANYWHERE, Where


@dataclass(frozen=True, slots=True)
class Demand:
    """A request on one class. `level` is that of a required `together`, else "any".

    `owners` are those whose quota it uses, as of `Request.quota_owners`; `tier` decides how far
    they may go.
    Each of the `count` needs `cores` (thousandths) and `memory` (MiB) of its node. `owner` is the
    account that runs it. With a `pin` it fits only on these nodes and GPUs, with a `where`
    only on such nodes. With `keeps_modes` no GPU may change its mode for it. The further `groups` of a
    mixed booking share its window. Nodes that have its `data` are preferred.
    """

    gpu_class: str
    profile: str | None
    count: int
    level: Together
    duration: int
    owners: tuple[str, ...]
    tier: str = ""
    share: int | None = None
    cores: int = 0
    memory: int = 0
    any_class: bool = False
    owner: str = ""
    pin: tuple[str, ...] = ()
    keeps_modes: bool = False
    groups: tuple[Ask, ...] = ()
    where: Where | None = None
    data: tuple[str, ...] = ()

    @property
    def is_bound(self) -> bool:
        """Whether some GPUs of its class are not for it: it is pinned, or only for some nodes."""
        return bool(self.pin) or self.where is not None

    @property
    def parts(self) -> tuple["Demand", ...]:
        """The demand on each class: one, unless the booking is mixed."""
        if not self.groups:
            return (self,)
        mine = replace(self, groups=())
        others = (
            demand_of(each, each.classes[0], self.duration, self.owners, self.tier, self.owner)
            for each in self.groups
        )
        return (mine, *others)

    @property
    def shape(self) -> Shape:
        """The shape of each GPU."""
        return self.profile if self.share is None else self.share

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for demands that differ only in duration, tier and owners of the quota."""
        whose = None if self.share is None else self.owner
        shape = self.profile if self.share is None else self.share
        return (
            self.gpu_class,
            shape,
            self.count,
            self.level,
            self.cores,
            self.memory,
            self.pin,
            whose,
            self.groups,
            self.where,
            self.data,
        )

    def in_zone(self, zone: str) -> "Demand | None":
        """The same in one zone ("": on nodes without one); None: it is not for that zone."""
        where = (self.where or ANYWHERE).only(zone)
        return None if where is None else replace(self, where=where)

    @property
    def host_resources(self) -> tuple[int, int]:
        """Cores and memory of each of the `count`."""
        return (self.cores, self.memory)


def demand_of(
    ask: Ask,
    gpu_class: str,
    duration: int,
    owners: tuple[str, ...],
    tier: str = "",
    owner: str = "",
) -> Demand:
    """The demand of an `Ask` on one of its classes."""
    return Demand(
        gpu_class,
        ask.profile,
        ask.count,
        ask.together if ask.required and ask.count > 1 else "any",
        duration,
        owners,
        tier,
        ask.share,
        ask.cores,
        ask.memory,
        ask.any_class,
        owner,
        ask.pin,
        groups=ask.groups,
        where=ask.where,
        data=ask.data,
    )


def demand_of_held(
    row: Held, gpu_class: str, duration: int, count: int = 1, level: Together = "any"
) -> Demand:
    """The demand of `count` places like a row's, for another duration."""
    return Demand(
        gpu_class,
        row.place.profile,
        count,
        level,
        duration,
        row.quota_owners,
        row.quota_tier,
        row.place.share,
        row.cores,
        row.memory,
        owner=row.owner,
        where=row.where,
    )


def demands_of(request: Request) -> tuple[Demand, ...]:
    """The demands of a request, one for each class, in order of preference."""
    owners = request.quota_owners
    return tuple(
        demand_of(request.ask, name, request.length_on(name), owners, request.quota_tier, request.owner)
        for name in dict.fromkeys(request.ask.classes)
    )


def demand_on(request: Request, gpu_class: str) -> Demand:
    """The demand of a request on one of its classes. StopIteration: not one of them."""
    return next(each for each in demands_of(request) if each.gpu_class == gpu_class)


@dataclass(frozen=True, slots=True)
class Fit:
    """A gang's places for a window, not yet reserved. `class_rank` is its class's in the request.

    `victims` are the running bookings that must be paused for it.
    """

    demand: Demand
    places: tuple[Place, ...]
    starts: int
    class_rank: int = 0
    victims: tuple[str, ...] = ()

    @property
    def ends(self) -> int:
        return self.starts + self.demand.duration

    @property
    def window(self) -> tuple[int, int]:
        """[starts, ends)."""
        return (self.starts, self.ends)
