"""An oracle of the quota tree with labs, persons and dated limits: from the definitions, at each
hour, from all bookings anew."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from solver import LabLimit, Limit, Override, PersonLimit

NEVER_FULL = 1 << 50


@dataclass(frozen=True)
class Work:
    """A booking of a person in a project: units in [first, last) hours."""

    tenant: str
    project: str
    person: str
    units: int
    first: int
    last: int
    is_paused_never: bool = False


@dataclass
class LimitTree:
    """All limits of one class, in units; hours are counted from the first."""

    limits: Sequence[Limit]
    labs: Sequence[LabLimit]
    persons: Sequence[PersonLimit]
    steps: Sequence[Override]
    capacity: int
    origin: int
    above: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int | None, int | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.limits:
            self.sizes[row.owner] = (row.guaranteed, row.borrow, row.lend)
            self.above[row.owner] = row.parent or "*"
        for lab in self.labs:
            self.sizes[lab.owner] = (lab.guaranteed, lab.borrow, lab.lend)
            self.above[lab.owner] = lab.tenant
            self.above |= dict.fromkeys(lab.projects, lab.owner)

    def allows(self, known: Sequence[Work], new: Work) -> bool:
        """Whether a booking fits at every hour of its time."""
        hours = range(new.first, new.last)
        own = self._chain(new.project, new.tenant)
        fits = all(self._fits(own, known, new, hour, is_cut=False) for hour in hours)
        fits = fits and all(self._persons_fit(known, new, hour) for hour in hours)
        sure = [work for work in known if work.is_paused_never or not new.is_paused_never]
        within = all(self._fits(own, sure, new, hour, is_cut=True) for hour in hours)
        lent = all(self._fits(["*"], known, new, hour, is_cut=False) for hour in hours)
        return fits and (within or (lent and not new.is_paused_never))

    def _chain(self, project: str, tenant: str) -> list[str]:
        """Project, lab and tenant, as far as they have limits."""
        found = [project] if project in self.above else [tenant]
        while self.above.get(found[-1], "*") != "*":
            found.append(self.above[found[-1]])
        return found

    def _fits(self, owners: list[str], known: Sequence[Work], new: Work, hour: int, *, is_cut: bool) -> bool:
        for owner in owners:
            before = self._use(owner, known, hour)
            after = self._use(owner, [*known, new], hour)
            if after > before and after > self._cap(owner, hour, is_cut=is_cut):
                return False
        return True

    def _persons_fit(self, known: Sequence[Work], new: Work, hour: int) -> bool:
        for scope in (new.tenant, new.project):
            rows = {row.person: row.most for row in self.persons if row.scope == scope}
            most = rows.get(new.person, rows.get("", NEVER_FULL))
            most += self._raised(f"{scope} {new.person}", hour)
            used = sum(
                work.units
                for work in [*known, new]
                if work.person == new.person
                and scope in (work.tenant, work.project)
                and work.first <= hour < work.last
            )
            if used > most:
                return False
        return True

    def _children(self, owner: str) -> list[str]:
        return [child for child, above in self.above.items() if above == owner]

    def _size(self, owner: str) -> tuple[int, int | None, int | None]:
        """Guarantee, borrow limit, lend limit. A project without a limit restricts nothing."""
        return self.sizes.get(owner, (0, None, None))

    def _subtree(self, owner: str) -> int:
        below = self._children(owner)
        rest = self._size(owner)[0] - sum(self._size(child)[0] for child in below)
        return max(0, rest) + sum(self._subtree(child) - self._local(child) for child in below)

    def _local(self, owner: str) -> int:
        lend = self._size(owner)[2]
        return 0 if lend is None else max(0, self._subtree(owner) - lend)

    def _kept(self, owner: str) -> int:
        below = self._children(owner)
        return sum(self._local(child) + self._kept(child) for child in below)

    def _cap(self, owner: str, hour: int, *, is_cut: bool) -> int:
        if owner == "*":
            tenants = self._children("*")
            idle = self.capacity - sum(self._size(each)[0] for each in tenants)
            return max(0, idle) + sum(self._subtree(each) - self._local(each) for each in tenants)
        guaranteed, borrow, _ = self._size(owner)
        own = max(0, guaranteed - self._kept(owner))
        is_tenant = self.above[owner] == "*"
        if is_cut and is_tenant:
            return own
        return own + (1 << 56 if borrow is None else borrow) + self._raised(owner, hour)

    def _raised(self, owner: str, hour: int) -> int:
        """How much higher its limit is at an hour."""
        moment = self.origin + 3600 * hour
        return sum(
            step.units for step in self.steps if step.owner == owner and step.starts <= moment < step.ends
        )

    def _use(self, owner: str, known: Sequence[Work], hour: int) -> int:
        now = [work for work in known if work.first <= hour < work.last]
        if owner == "*":
            seen = sum(self._visible(child, now, hour) for child in self._children("*"))
            return seen
        direct = sum(work.units for work in now if self._chain(work.project, work.tenant)[0] == owner)
        return direct + sum(self._visible(child, now, hour) for child in self._children(owner))

    def _visible(self, owner: str, known: Sequence[Work], hour: int) -> int:
        return max(0, self._use(owner, known, hour) - self._local(owner))

    def hours_of(self, work: Work) -> Iterator[int]:
        """The hours of a booking."""
        yield from range(work.first, work.last)
