"""The agent's loop: follows the newest document, ends allocations on time, sends reports."""

import contextlib
import dataclasses
import logging
import queue
from collections.abc import Callable, Collection, Mapping

from agent.act.apply import Applier, Outcome, ended_mark_failed
from agent.act.endings import Endings
from agent.act.leases import Leases, lapsed_mark_failed, lapsed_of
from agent.act.step_times import StepTimes
from agent.act.suspensions import SuspensionLimits, Suspensions
from agent.act.unbooked_processes import UnbookedProcesses
from agent.node import Node
from agent.owners import OwnerChannel
from agent.plan.targets import GpuTarget, gpu_targets, next_boundary, records_of
from agent.ports import link as links
from agent.ports.clock import AgreedTime, Clock
from agent.ports.gpu import GpuError
from agent.report import reports
from agent.report.examination import ExaminationDone
from agent.report.reports import Outbox, ReportSender, Spoken
from agent.report.watch import Watch
from agent.state.documents import DocumentFollower
from agent.state.records import Records
from agent.state.store import StoreError

log = logging.getLogger(__name__)

RECONCILE_EVERY_S = 5.0
HEARTBEAT_EVERY_S = 5.0
TELEMETRY_EVERY_S = 10.0
_PROCESS_POLL_S = 0.25
_TASKS = ("reconcile", "listen", "notebooks", "heartbeat", "telemetry")


class Stop:
    """Ends the loop when it is in the inbox."""


class Leave:
    """Ends the loop when nothing is held any more: the node has another agent, or none."""


Arrival = links.Arrival | ExaminationDone | Leave | Stop


class Agent:
    """Only `inbox` may be touched from other threads or signal handlers."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        self.inbox: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._node = node
        self._store = node.store
        # Messages have the machine's own time, by which the portal finds a wrong clock.
        self._machine_time = (machine := clock or Clock()).wall
        self._agreed = AgreedTime(machine)
        self._clock = Clock(wall=self._agreed.now, steady=machine.steady)
        self._follower = DocumentFollower(node.keys, node.store)
        self._times = StepTimes(self._clock)
        self._reports = ReportSender(node.keys, node.store, self._clock.steady(), self._times)
        records = Records(node.store, node.jobs.together if node.jobs else frozenset)
        self._suspensions = Suspensions(
            port=node.port,
            records=records,
            programs=node.programs,
            suspender=node.suspender,
            limits=_suspension_limits(node, records),
        )
        self._owners = OwnerChannel(node, records, self._suspensions)
        self._endings = Endings(
            port=node.port,
            records=records,
            suspensions=self._suspensions,
            programs=node.programs,
            monotonic=self._clock.steady,
        )
        self._applier = Applier(
            port=node.port,
            handover=node.handover,
            records=records,
            endings=self._endings,
            look=self._owners.look,
            times=self._times,
        )
        inventory = node.inventory()
        self._gpus = tuple(gpu.uuid for gpu in inventory.gpus)
        self._leases = Leases(node.keys, node.store, boot=inventory.boot)
        self._store_error: str | None = None
        with contextlib.suppress(StoreError):
            # Reserve the sequence numbers of this process before the first message.
            self._store.save()
        self._files_error: str | None = None
        self._slices_error: str | None = None
        self._jobs_error: str | None = None
        self._outcomes: list[Outcome] = []
        self._examined: tuple[ExaminationDone, int] | None = None
        self._watch = Watch(node.port, node.watch, _unbooked_processes(node, self._clock.steady))
        self._due = dict.fromkeys(_TASKS, self._clock.steady())

    def run(self, sender: Outbox) -> None:
        """Runs until a Stop arrives, or nothing is held after a Leave. Programs on the GPUs continue."""
        leaving = False
        while True:
            self.turn(sender)
            self._node.alive()
            if leaving and all(record.emptied for record in self._store.held.values()):
                return
            for arrival in _drained(self.inbox, self.wait_s()):
                if isinstance(arrival, Stop):
                    return
                if isinstance(arrival, Leave):
                    leaving = True
                else:
                    self.handle(arrival, sender)

    def handle(self, arrival: links.Arrival | ExaminationDone, sender: Outbox) -> None:
        """Takes in one arrival; what follows from it is done in the next `turn`."""
        match arrival:
            case ExaminationDone():
                self._examined = (arrival, int(self._machine_time()))
                self._send_examination(sender)
            case links.DocumentRead(raw):
                self._document(raw)
            case links.LeaseRead(raw):
                if self._leases.read(raw, self._clock.steady()):
                    self._due["reconcile"] = self._clock.steady()
            case links.Connected():
                self._reports.resend()
                self._take_inventory(sender)
                self._send_examination(sender)
                self._due["reconcile"] = self._due["heartbeat"] = self._clock.steady()
            case links.ServerTime(at):
                self._agreed.confirm(at)
            case links.Delivered(seq):
                self._reports.delivered(seq)

    def _document(self, raw: bytes) -> None:
        before = self._store.desired
        if self._follower.read(raw):
            self._due["reconcile"] = self._clock.steady()
        if self._store.desired is not before:
            self._applier.retry_all()

    def _take_inventory(self, sender: Outbox) -> None:
        try:
            inventory = self._node.inventory()
        except GpuError as error:
            # The old list is kept: bookings must end on time even without an inventory.
            log.warning("no inventory: %s", error)
            return
        self._gpus = tuple(gpu.uuid for gpu in inventory.gpus)
        self._reports.inventory(sender, inventory)

    def _send_examination(self, sender: Outbox) -> None:
        if self._examined is not None:
            found, at = self._examined
            self._reports.examination(sender, found.checks, at)

    def turn(self, sender: Outbox) -> None:
        """Does what is due now."""
        now = self._clock.steady()
        if now >= self._due["reconcile"]:
            self._due["reconcile"] = now + RECONCILE_EVERY_S
            silent = {each.gpu for each in self._outcomes if each.truth is None}
            self._reconcile()
            self._due["notebooks"] = now
            if silent & {each.gpu for each in self._outcomes if each.truth is not None}:
                # What was lost is back.
                self._take_inventory(sender)
            self._report(sender)
        if now >= self._due["listen"]:
            self._due["listen"] = now + self._owners.listen_interval_s
            if self._owners.listen(self._clock.wall()):
                self._report(sender)
        if now >= self._due["notebooks"]:
            self._notebooks(sender)
        if now >= self._due["heartbeat"]:
            self._due["heartbeat"] = now + HEARTBEAT_EVERY_S
            left = self._leases.remaining(now)
            self._leases.sent(self._reports.heartbeat(sender, self._machine_time(), left), now)
        if now >= self._due["telemetry"]:
            self._due["telemetry"] = now + TELEMETRY_EVERY_S
            self._telemetry(sender)

    def _notebooks(self, sender: Outbox) -> None:
        self._owners.notebooks_sync(self._clock.wall())
        now, notebooks = self._clock.steady(), self._node.notebooks
        self._due["notebooks"] = now + self._owners.notebooks_interval_s
        if notebooks is not None:
            self._reports.notebooks(sender, notebooks.programs, notebooks.reported(), now)

    def _report(self, sender: Outbox) -> None:
        problems = (
            self._follower.problem,
            self._store_error,
            self._files_error,
            self._slices_error,
            self._jobs_error,
        )
        escalation = self._store.desired.ladder if self._store.desired else None
        seen = self._watch.look(self._outcomes, self._store.held, self._clock.wall(), escalation)
        jobs: Mapping[str, int] = {}
        if self._node.jobs is not None:
            jobs = self._node.jobs.numbers()
            seen = dataclasses.replace(seen, scripts=self._node.jobs.scripts(), hosts=self._node.jobs.hosts())
        if self._node.stager is not None:
            seen = dataclasses.replace(seen, staging=dict(self._node.stager.fetching))
        self._reports.report(sender, self._outcomes, problems, self._clock.steady(), seen, jobs)

    def wait_s(self) -> float:
        """Returns the seconds until the next task on the steady clock, or start or end on the
        wall's."""
        steady = self._clock.steady()
        sooner = [self._due["reconcile"]]
        wall = self._clock.wall()
        edge = next_boundary(self._store.desired, wall)
        if edge is not None:
            sooner.append(steady + edge - wall)
        fence = self._leases.expires_at(self._store.held)
        if fence is not None:
            sooner.append(fence)
        if self._endings.is_waiting or (self._node.jobs and self._node.jobs.is_waiting):
            sooner.append(steady + _PROCESS_POLL_S)
        self._due["reconcile"] = min(sooner)
        return max(0.0, min(self._due.values()) - steady)

    # Applying the document.

    def _reconcile(self) -> None:
        now = self._clock.wall()
        # The file with the owner's report is removed with the booking.
        self._owners.listen(now)
        self._owners.suspended_resume(now)
        before = self._store.held
        targets = self._targets(now)
        named = {target.gpu for target in targets}
        targets += [GpuTarget(gpu, None, ()) for gpu in self._gpus if gpu not in named]
        # The files of an ending booking are removed before its device is taken.
        self._files_error = self._owners.files_sync(now)
        self._slices_error = self._owners.slices_sync(targets)
        self._owners.notices_signal(before)
        # An owner may respond to a notice from now on.
        self._due["listen"] = self._clock.steady() + self._owners.listen_interval_s
        self._endings.retain({t.allocation.id for each in targets for t in each.tasks if t.ending})
        self._jobs_error = self._owners.jobs_follow(targets)
        for name, fetched in self._owners.data_follow(targets).items():
            self._times.staged(name, fetched.began, fetched.took)
        self._outcomes = [self._applier.turn(target) for target in targets]
        ended_mark_failed(self._outcomes, self._node.jobs.ended() if self._node.jobs else {})
        lapsed_mark_failed(self._outcomes, lapsed_of(self._store.desired, self._store.held, now))
        for outcome in self._outcomes:
            for name, state in outcome.states.items():
                ready = state.state == "ready"
                since = self._node.handover.given.get(name) if ready else None
                self._reports.entered(name, state.state, since.since if since else int(now))
        self._times.retain(self._store.held)
        self._files_error = self._owners.files_sync(now)
        self._slices_error = self._owners.slices_sync(targets)
        self._owners.suspended_resume(now)

    def _targets(self, now: float) -> list[GpuTarget]:
        desired = self._store.desired
        if desired is None:
            return []
        steady = self._clock.steady()
        fenced = self._leases.fence(self._store.held, steady)
        self._store.held = records_of(desired, fenced, now, remembers=self._store.remembers)
        try:
            self._store.save()
        except StoreError as error:
            # Without a record nothing new may begin. Running allocations continue and end on time.
            self._store_error = str(error)
            log.error("%s", self._store_error)  # noqa: TRY400 - the message says it all
            self._store.held = self._leases.fence(self._store.held, steady)
            known = gpu_targets(desired, self._store.held, now)
            return [_started_only(target, self._node.handover.devices()) for target in known]
        self._store_error = None
        self._follower.settle()
        self._suspensions.discard_unwanted(desired)
        targets = [
            dataclasses.replace(target, one_account=self._node.one_account)
            for target in gpu_targets(desired, self._store.held, now)
        ]
        return self._leases.without_leased(targets, steady)

    def _telemetry(self, sender: Outbox) -> None:
        owners = reports.owners_of(self._store.held)
        samples = reports.samples_take(self._node.port, self._gpus, owners)
        progress = reports.progress_of(self._store.held, self._node.bookings.progress_lines())
        data = None if self._node.data is None else self._node.data.listing
        host = self._owners.host_uses(self._clock.wall(), self._clock.steady())
        more = Spoken(progress, data, host)
        self._reports.telemetry(sender, samples, self._machine_time(), more)
        if self._node.board is not None:
            self._node.board.show(self._clock.wall(), samples, self._store, self._outcomes)


def _drained(inbox: "queue.SimpleQueue[Arrival]", wait_s: float) -> list[Arrival]:
    """Returns what is in the inbox, after waiting for the first."""
    with contextlib.suppress(queue.Empty):
        arrivals = [inbox.get(timeout=wait_s)]
        while not inbox.empty():
            arrivals.append(inbox.get())
        return arrivals
    return []


def _suspension_limits(node: Node, records: Records) -> SuspensionLimits:
    suspender = None if node.programs is None else node.suspender
    return SuspensionLimits(port=node.port, records=records, suspender=suspender, limit_mb=node.available_mb)


def _unbooked_processes(node: Node, steady: Callable[[], float]) -> UnbookedProcesses | None:
    if node.programs is None:
        return None
    return UnbookedProcesses(node.port, node.programs, node.account_of, steady, may_end=node.may_end)


def _started_only(target: GpuTarget, there: Collection[str]) -> GpuTarget:
    """Returns the target with ending and handed allocations only, and the mode that they need."""
    tasks = tuple(task for task in target.tasks if task.ending or task.allocation.id in there)
    mode = next((task.mode for task in tasks if not task.ending), None)
    return dataclasses.replace(target, mode=mode, tasks=tasks)
