"""What people of a world do besides asking, as it happens: bookings that change, wait for an
approval, for a window or for others, and what the plan says to each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from solver import Held, Plan, PlannedStart, Request
from solver.model.inputs import Change, Entry, Strength
from solver.model.limits import Override
from solver.model.plan import ChangeAnswer, Offered
from tests.solver.truth import count_of
from tests.worlds.jobs import Job
from tests.worlds.requests import Edit, Requests

if TYPE_CHECKING:
    from tests.worlds.life import World

KEPT, MARGIN = 7_200, 900
"""A place is kept so long for who waits for an approval, and given up so long before its start."""
DECISION = 1_800
"""A flexible request that waits for an approval is planned so much later."""
LEAST = 60
MOST_EXPIRED = 2


@dataclass(frozen=True)
class Open:
    """An offer without an answer: until when, and the rows that keep its room."""

    until: int
    answer: str
    at: int


@dataclass(frozen=True)
class Weakened:
    """A booking that has just given something up, with what it had."""

    booking: str
    before: Request


class People:
    """The people of one world. They read and write its rows and its queue."""

    def __init__(self, world: "World", requests: Requests) -> None:
        self._world, self._requests = world, requests
        self._edited: set[Edit] = set()
        self.changes: dict[str, Change] = {}
        self.pending: dict[str, Request] = {}
        self.unapproved: dict[str, Request] = {}
        self.entries: dict[str, Entry] = {}
        self.offers: dict[str, Open] = {}
        self._made: dict[str, int] = {}
        self._until: dict[str, int] = {}
        self._after: dict[str, Job] = {}
        self.weakened: list[Weakened] = []
        self.counts = {"changed": 0, "kept": 0, "offers": 0, "soft": 0, "waited": 0}

    @property
    def overrides(self) -> tuple[Override, ...]:
        """Those that have not ended, as the portal reads them."""
        return tuple(each for each in self._requests.overrides if each.ends > self._world.now)

    def is_open(self) -> bool:
        """True while somebody waits for people."""
        return bool(self.unapproved or self.entries or self._after)

    def is_awaited(self) -> bool:
        """True while somebody waits for room."""
        return bool(self.pending or self.entries or self.changes)

    def times(self) -> list[int]:
        """Seconds at which somebody does something."""
        world = self._world
        known = [world.runs[name].job for name in self.unapproved]
        times = [job.at + self._requests.approvals[job.name][0] for job in known]
        times += [request.until for request in self.pending.values() if request.until]
        times += [min(each.until, each.at) for each in self.offers.values()]
        times += [self._until[name] for name, each in self.changes.items() if each.waiting]
        times += [self._last(entry) + 1 for entry in self.entries.values()]
        times += [each.ends for each in self.overrides]
        times += [
            world.waiting[name].earliest
            for name, listed in self._requests.listed.items()
            if listed.mode == "auto" and name in world.waiting
        ]
        for edit in self._requests.edits:
            if edit not in self._edited and edit.booking in world.runs:
                times.append(world.runs[edit.booking].job.at + edit.after)
        return times

    # What happens.

    def takes(self, job: Job) -> bool:
        """True for a job that does not simply wait in the queue from now on."""
        name, world, requests = job.name, self._world, self._requests
        parent = requests.parents.get(name)
        if parent is not None and not self._is_over(parent):
            self._after[name] = job
            return True
        if name in requests.approvals:
            world.runs[name] = world.run_of(job)
            request = world.request_of(job)
            self.unapproved[name] = request
            soonest = request.earliest if job.fixed else max(request.earliest, job.at + DECISION)
            self.pending[name] = replace(request, earliest=soonest, until=job.at + KEPT)
            return True
        listed = requests.listed.get(name)
        if listed is None or listed.mode == "auto":
            return False
        world.runs[name] = world.run_of(job)
        windows = tuple((job.at + since, job.at + until) for since, until in listed.windows)
        self.entries[name] = Entry(name, world.request_of(job), windows)
        return True

    def waits_for_its_window(self, name: str) -> bool:
        """True for a refused window that stays on the list."""
        listed = self._requests.listed.get(name)
        world = self._world
        is_auto = listed is not None and listed.mode == "auto"
        return is_auto and world.runs[name].job.earliest > world.now

    def happen(self) -> Iterator[str]:
        """All that people do now."""
        world = self._world
        self.weakened = []
        for name, job in list(self._after.items()):
            if self._is_over(self._requests.parents[name]):
                del self._after[name]
                late = max(0, world.now - job.earliest)
                world.arrive(replace(job, at=world.now, earliest=job.earliest + late))
                yield "arrival"
        yield from self._decide()
        yield from self._answer()
        for edit in self._requests.edits:
            run = world.runs.get(edit.booking)
            if edit in self._edited or run is None or run.job.at + edit.after > world.now:
                continue
            self._edited.add(edit)
            for each in self._dates(edit):
                yield from self._edit(each)
        self._close()

    def _is_over(self, name: str) -> bool:
        world = self._world
        return name in world.ended or name in world.refused

    def _decide(self) -> Iterator[str]:
        """Approvers say yes or no."""
        world = self._world
        for name, request in list(self.unapproved.items()):
            after, is_yes = self._requests.approvals[name]
            if request.submitted + after <= world.now:
                del self.unapproved[name]
                kept = self.pending.pop(name, None)
                if is_yes:
                    planned = kept.planned if kept is not None and not request.fixed else None
                    world.waiting[name] = replace(request, planned=planned)
                else:
                    world.refused[name] = world.now
                yield "approval"
        for name, request in list(self.pending.items()):
            if request.until is None or request.until <= world.now:
                del self.pending[name]
                yield "place given up"

    def _answer(self) -> Iterator[str]:
        """People answer offers, or do not; entries whose windows are over leave the list."""
        world = self._world
        for name, each in sorted(self.offers.items()):
            entry = self.entries[name]
            rows = world.rows_of(name)
            if each.answer == "accept" and each.at < each.until and each.at <= world.now:
                del self.offers[name], self.entries[name]
                yield "accepted"
            elif each.until <= world.now or (each.answer == "decline" and each.at <= world.now):
                del self.offers[name]
                world.rows = [row for row in world.rows if row.booking != name]
                declined = each.answer == "decline" and each.at < each.until
                self.entries[name] = _without(entry, rows[0]) if declined else _expired(entry)
                yield "offer is over"
        for name, entry in list(self.entries.items()):
            if name not in self.offers and self._last(entry) < world.now:
                del self.entries[name]
                world.refused[name] = world.now
                yield "left the list"

    def _last(self, entry: Entry) -> int:
        """The last second at which it could still start."""
        lengths = [until - entry.request.duration for _, until in entry.windows]
        return max(lengths, default=0)

    # Changes.

    def _is_changeable(self, name: str) -> bool:
        """True for what has not begun, has not run before, and has nobody leave for it."""
        world = self._world
        run, rows = world.runs[name], world.rows_of(name)
        if run.pauses or run.notified is not None or run.began is not None or run.is_preemptor:
            return False
        if name in self.entries:
            return False
        if any(row.started or row.starts <= world.now for row in rows):
            return False
        return bool(rows) or name in world.waiting

    def _close(self) -> None:
        """Changes of what has begun, or that have waited long enough, are over; so are those that
        are made with them or not at all."""
        over = {
            name
            for name, each in self.changes.items()
            if not self._is_changeable(name) or (each.waiting and self._until.get(name, 0) <= self._world.now)
        }
        groups = {self.changes[name].group for name in over if self.changes[name].waiting} - {""}
        self.changes = {
            name: each for name, each in self.changes.items() if name not in over and each.group not in groups
        }

    def _dates(self, edit: Edit) -> list[Edit]:
        """A change of a series as one of each date that has not begun."""
        runs = self._world.runs.values()
        if not edit.series:
            return [edit]
        names = sorted(run.job.name for run in runs if run.job.series == edit.series)
        return [replace(edit, booking=name) for name in names]

    def _edit(self, edit: Edit) -> Iterator[str]:
        world, name = self._world, edit.booking
        if not self._is_changeable(name) or name in self.changes:
            return
        before = world.waiting.get(name) or world.request_of(world.runs[name].job)
        after = self._edited_request(before, edit)
        if after is None or (before.durations and edit.kind in ("longer", "shorter", "fewer")):
            return
        if edit.kind in ("shorter", "fewer"):
            self._weaken(name, before, after)
            yield "weaker"
            return
        rows = world.rows_of(name)
        notified = "firm" if rows or before.fixed else _strength(before)
        latest = after.latest
        if edit.is_bound and before.planned is not None and not after.fixed:
            bound = max(before.planned.starts, after.earliest) + after.duration
            latest = bound if latest is None else min(latest, bound)
        target = replace(
            after,
            booking=f"change of {name}",
            submitted=world.now,
            latest=latest,
            planned=None,
            revision=before.revision + 1,
            series=None,
        )
        group = f"all of {edit.series}" if edit.series else ""
        self.changes[name] = Change(name, target, notified if edit.is_bound else None, group)
        # As the portal does: it waits until its last start.
        last = target.earliest if target.fixed else world.now + edit.waits
        self._until[name] = min(world.now + edit.waits, last)
        yield "change"

    def _edited_request(self, before: Request, edit: Edit) -> Request | None:
        world, count = self._world, before.ask.count
        if edit.kind == "longer":
            return replace(before, duration=before.duration * 3 // 2)
        if edit.kind == "shorter":
            return replace(before, duration=max(LEAST, before.duration * 2 // 3))
        if edit.kind == "more":
            ask = replace(before.ask, count=count + 1)
            return None if before.ask.pin or before.ask.share else replace(before, ask=ask)
        if edit.kind == "fewer":
            ask = replace(before.ask, count=count - 1)
            return None if count == 1 or ask.groups else replace(before, ask=ask)
        if edit.kind == "tier":
            is_any = bool(before.ask.groups)
            tiers = [t for t in world.tiers if t.pausable or is_any]
            tiers = [t for t in tiers if t.slug != before.tier]
            tier = tiers[edit.after % len(tiers)]
            return replace(before, tier=tier.slug, priority=tier.priority)
        step = 1_800 if edit.kind == "later" else -1_200
        return replace(before, earliest=max(world.now + LEAST, before.earliest + step))

    def _weaken(self, name: str, before: Request, after: Request) -> None:
        """A weaker change has its effect at once."""
        world = self._world
        self.weakened.append(Weakened(name, before))
        self._is_now(name, after)
        kept: list[Held] = []
        for row in world.rows:
            if row.booking == name:
                if sum(each.booking == name for each in kept) >= count_of(after.ask):
                    continue
                kept.append(replace(row, ends=row.starts + after.duration))
            else:
                kept.append(row)
        world.rows = kept
        if name in world.waiting:
            planned = before.planned
            if planned is not None:
                places = planned.places[: count_of(after.ask)]
                ends = planned.starts + after.duration
                planned = replace(planned, ends=ends, places=places)
            world.waiting[name] = replace(after, planned=planned, revision=before.revision + 1)

    def _is_now(self, name: str, request: Request) -> None:
        """The booking asks for this from now on."""
        run = self._world.runs[name]
        tier = next(t for t in self._world.tiers if t.slug == request.tier)
        less = request.duration - run.planned
        run.job = replace(
            run.job,
            at=request.submitted,
            tier=tier,
            ask=request.ask,
            seconds=request.duration,
            earliest=request.earliest,
            extended_by=0,
        )
        run.planned, run.really = request.duration, max(LEAST, run.really + less)

    # What the plan says.

    def snapshot(self) -> dict[str, Any]:
        """What the solver reads of them."""
        entries = []
        for name, entry in sorted(self.entries.items()):
            if name in self.offers or entry.expired >= MOST_EXPIRED or not entry.windows:
                continue
            mine = [o for o in self.offers if self._owner(o) == self._owner(name)]
            classes = {self._class_of(o) for o in mine}
            entries.append(replace(entry, barred=tuple(sorted(classes))))
        return {
            "changes": tuple(self.changes.values()),
            "pending": tuple(self.pending.values()),
            "entries": tuple(entries),
            "overrides": self.overrides,
            "labs": self._requests.labs,
            "persons": self._requests.persons,
        }

    def read(self, plan: Plan) -> None:
        """Exchanges what was granted, before the plan is made true; keeps places and offers."""
        for answer in plan.changes:
            self._exchange(answer)
        for soft in plan.soft:
            request = self.pending[soft.booking]
            if not soft.places:
                del self.pending[soft.booking]
                continue
            self.counts["soft"] += request.planned is None
            planned = PlannedStart(soft.starts, soft.ends, soft.places)
            until = min(request.until or 0, soft.starts - MARGIN)
            self.pending[soft.booking] = replace(request, planned=planned, until=until)
        for offered in plan.offers:
            self._offer(offered)

    def _exchange(self, answer: ChangeAnswer) -> None:
        world, name = self._world, answer.booking
        change = self.changes.pop(name)
        self.counts["changed" if answer.granted else "kept"] += 1
        if not answer.granted:
            self._wait(name, change)
            return
        target = replace(change.target, booking=name)
        world.rows = [row for row in world.rows if row.booking != name]
        self._is_now(name, target)
        world.waiting[name] = replace(target, planned=None)

    def _wait(self, name: str, change: Change) -> None:
        """Leaves a change open that waits for room."""
        if self._until.get(name, 0) > self._world.now:
            self.changes[name] = replace(change, waiting=True)
            self.counts["waited"] += 1

    def _offer(self, offered: Offered) -> None:
        world, name = self._world, offered.booking
        self.counts["offers"] += 1
        made = self._made[name] = self._made.get(name, 0) + 1
        answers = self._requests.listed[name].answers
        answer, after = answers[(made - 1) % len(answers)]
        at = world.now + after if answer != "none" else offered.until
        self.offers[name] = Open(offered.until, answer, at)
        request = replace(self.entries[name].request, earliest=offered.starts, fixed=True)
        run = world.runs[name]
        run.job = replace(run.job, earliest=offered.starts)
        world.waiting[name] = request
        world.give(request, offered.places, offered.starts, offered.ends)

    def _owner(self, name: str) -> tuple[str, str]:
        job = self._world.runs[name].job
        return job.tenant, job.owner

    def _class_of(self, name: str) -> str:
        gpu = self._world.rows_of(name)[0].place.gpu
        return next(each.gpu_class for each in self._world.drawn.gpus if each.id == gpu)


def _strength(request: Request) -> Strength | None:
    return request.planned.strength if request.planned is not None else None


def _without(entry: Entry, row: Held) -> Entry:
    """The declined time is cut out of the windows."""
    left = []
    for since, until in entry.windows:
        parts = [(since, min(until, row.starts)), (max(since, row.ends), until)]
        left += [part for part in parts if part[1] - part[0] >= entry.request.duration]
    return replace(entry, windows=tuple(left), expired=0)


def _expired(entry: Entry) -> Entry:
    return replace(entry, expired=entry.expired + 1)
