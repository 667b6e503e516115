"""The agent's channel to the owners of bookings: files, hooks and signals to them, reports back."""

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

import wire
from agent.act.suspensions import Suspensions
from agent.data.staging import Fetched
from agent.node import Node
from agent.owner.device_holders import share_holders
from agent.owner.notices import (
    has_open_notice,
    newly_notified,
    programs_signal,
    saved_updates,
)
from agent.owner.shares import ActiveBooking, NodeContext, active_bookings
from agent.owner.slices import claims_of
from agent.plan.pauses import ProgramsSeen, pause_method
from agent.plan.targets import GpuTarget, Record, Task
from agent.ports.gpu import GpuError
from agent.ports.group_use import HostShare, HostUses, first_allocations
from agent.ports.handover import booking_full_name
from agent.state.records import Records
from agent.state.store import StoreError

log = logging.getLogger(__name__)

LISTEN_EVERY_S = 0.2
_LISTEN_IN_QUIET_S = 5.0


class OwnerChannel:
    """Writes the files of bookings, and reads the owners' reports from them.

    It keeps MPS daemons, systemd slices and suspended programs in step with the active bookings.
    """

    def __init__(self, node: Node, records: Records, suspensions: Suspensions) -> None:
        self._node = node
        self._records = records
        self._suspensions = suspensions
        self._uses = HostUses(node.group_use, node.links_use)
        self._place = node.place or NodeContext(node.keys.identity.node, node.handover.root)

    @property
    def listen_interval_s(self) -> float:
        """Seconds until the next `listen`."""
        return LISTEN_EVERY_S if has_open_notice(self._records.held) else _LISTEN_IN_QUIET_S

    def listen(self, now: float) -> bool:
        """Records new reports that all is saved; returns whether there are any. `now`: Unix
        seconds."""
        found = saved_updates(self._records.held, self._node.bookings.saved_times(), now)
        self._records.set_saved(found)
        return bool(found)

    def files_sync(self, now: float) -> str | None:
        """Updates MPS daemons, files and hooks of active bookings; returns the problems."""
        self._cores_lend(now)
        parts, mps, bookings = self._parts(now), self._node.mps, self._node.bookings
        if mps is None:
            return bookings.sync(parts)
        # Without a daemon a program would use the GPU without a limit, so a new share waits for its
        # daemon, whose account needs the device first.
        new = {name for name, part in parts.items() if part.shares and not bookings.has_files(name)}
        if new:
            bookings.open(parts)
        problems = mps.sync(self._accounts())
        waiting = {name for name in new if not mps.is_settled(parts[name].gpus)}
        return "; ".join(filter(None, (*problems, bookings.sync(parts, waiting)))) or None

    def _cores_lend(self, now: float) -> None:
        """Lends free cores. What is about to begin has its own before that."""
        kept, desired = self._node.cores_kept, self._node.store.desired
        if kept is None or desired is None:
            return
        rows = [each for gpu in desired.gpus for each in gpu.allocations if each.state == "run"]
        rows = [each for each in rows if each.starts <= now < each.ends]
        given = self._node.handover.given
        coming = sum(each.cores for each in rows if each.id not in given)
        wanted = {each.id: each.more_cores for each in rows if each.more_cores}
        self._node.handover.cores_lend(wanted, kept + coming)

    def _spare(self) -> int:
        """Returns the cores that could be lent."""
        kept = self._node.cores_kept
        return 0 if kept is None else max(0, len(self._node.handover.cores_free()) - kept)

    def _accounts(self) -> dict[str, int | None]:
        """Returns the uid that uses each shared GPU, until its shares are proven empty; root's
        where several accounts may share one GPU."""
        found: dict[str, set[int | None]] = defaultdict(set)
        for held in self._records.held.values():
            if held.allocation.share is not None and held.given and not held.emptied:
                found[held.gpu].add(self._account(held.allocation.owner))
        if not self._node.one_account:
            return dict.fromkeys(found, 0)
        return {gpu: next(iter(uids)) if len(uids) == 1 else None for gpu, uids in found.items()}

    def _account(self, member: str) -> int | None:
        account = self._place.account_of(member)
        return None if account is None else self._node.bookings.uid_of(account)

    def suspended_resume(self, now: float) -> None:
        """Resumes suspended programs of bookings that have all their devices again."""
        try:
            given = self._node.handover.devices()
            self._suspensions.resume(self._parts(now).values(), given)
        except (GpuError, StoreError) as error:
            log.warning("suspended programs are not resumed yet: %s", error)

    def _parts(self, now: float) -> dict[str, ActiveBooking]:
        handover = self._node.handover
        desired, given = self._node.store.desired, handover.devices()
        return active_bookings(desired, given, now, self._place, handover.cores())

    def host_uses(self, now: float, steady: float) -> tuple[wire.HostUse, ...]:
        """Returns what active bookings use of the host since the last call."""
        parts = self._parts(now)
        held = self._records.held.values()
        named = (
            (booking_full_name(each.allocation), each.allocation.id) for each in held if not each.emptied
        )
        first = first_allocations(named)
        spare = self._spare()
        asked = {
            name: HostShare(first[name], len(part.cores), spare if part.cores else 0)
            for name, part in parts.items()
            if name in first
        }
        return self._uses.take(asked, steady)

    def notebooks_sync(self, now: float) -> None:
        """Starts, ends and looks at notebooks. `now`: Unix seconds."""
        notebooks, desired = self._node.notebooks, self._node.store.desired
        if notebooks is not None and desired is not None:
            notebooks.sync(desired.notebooks, self._parts(now))

    @property
    def notebooks_interval_s(self) -> float:
        """Seconds until the next `notebooks_sync`."""
        return math.inf if self._node.notebooks is None else self._node.notebooks.poll_s

    def slices_sync(self, targets: Iterable[GpuTarget]) -> str | None:
        """Updates the systemd slices of bookings; returns the problems."""
        slices, handover = self._node.slices, self._node.handover
        if slices is None:
            return None
        tasks = [task for target in targets for task in target.tasks]
        running = (task.allocation for task in tasks if not task.ending)
        claims = claims_of(running, handover.devices(), handover.cores())
        suspended = {each.booking for each in self._records.suspended.values()}
        suspending = {
            booking_full_name(t.allocation) for t in tasks if t.ending and not t.emptied and _suspends(t)
        }
        return "; ".join(slices.sync(claims, suspended | suspending)) or None

    def jobs_follow(self, targets: Iterable[GpuTarget]) -> str | None:
        """Gives the other scheduler of the node what is to run; returns the problems."""
        jobs = self._node.jobs
        known = self._node.store.desired is not None
        return None if jobs is None else "; ".join(jobs.follow(targets, known=known)) or None

    def notices_signal(self, before: Mapping[str, Record]) -> None:
        """Signals the programs of bookings that have a new notice since `before`."""
        node, held = self._node, self._records.held
        notified = newly_notified(before, held)
        if notified and node.programs is not None and node.pause_signal is not None:
            programs_signal(
                node.port, node.programs, node.pause_signal, notified, held, self._place.account_of
            )

    def look(self, target: GpuTarget) -> ProgramsSeen:
        """Returns the programs of each share, and those being suspended or resumed. Raises
        GpuError."""
        live = (task.allocation for task in target.tasks if not task.emptied)
        shares = [allocation for allocation in live if allocation.share is not None]
        node, account_of = self._node, self._place.account_of
        found = share_holders(node.port, node.programs, target.gpu, shares, account_of)
        if node.stager is None:
            return ProgramsSeen(found, self._suspensions.busy())
        fetching, failed = node.stager.fetching, node.stager.failed
        return ProgramsSeen(found, self._suspensions.busy(), fetching, failed)

    def data_follow(self, targets: Iterable[GpuTarget]) -> Mapping[str, Fetched]:
        """Fetches the data of allocations that are about to start; returns what has been fetched."""
        if self._node.stager is None:
            return {}
        given = self._node.handover.devices()
        tasks = (task for target in targets for task in target.tasks)
        return self._node.stager.follow(
            {
                task.allocation.id: task.allocation.data
                for task in tasks
                if task.allocation.data and not task.ending and task.allocation.id not in given
            }
        )


def _suspends(task: Task) -> bool:
    method, _ = pause_method(task.allocation.notice, task.mode, gang=task.gang)
    return method == "suspend"
