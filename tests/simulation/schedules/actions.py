"""The events of a schedule, with their weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.schedules import faults, happenings

if TYPE_CHECKING:
    from tests.simulation.schedules.schedule import Schedule

Action = Callable[["Schedule"], None]
LIFE: tuple[tuple[Action, int], ...] = (
    (happenings.time_passes, 30),
    (happenings.request, 14),
    (happenings.claim, 10),
    (happenings.release, 5),
    (happenings.cancel, 4),
    (happenings.extend, 3),
    (happenings.saved_is_reported, 5),
    (happenings.more_time_is_requested, 5),
    (happenings.claim_is_given_up, 1),
    (happenings.maintenance_is_planned, 3),
    (happenings.maintenance_ends, 1),
    (happenings.reader_restarts, 1),
    (faults.operator_returns, 2),
    (happenings.move_is_ordered, 6),
    (happenings.portal_is_killed_before_it_publishes, 3),
    (happenings.people_act_while_a_plan_is_made, 6),
)
FAULTS: tuple[tuple[Action, int], ...] = (
    (faults.agent_is_killed, 9),
    (faults.node_reboots, 4),
    (faults.connection_breaks, 7),
    (faults.server_loses_everything, 2),
    (faults.messages_are_disturbed, 6),
    (faults.old_document_comes, 5),
    (faults.gpu_fails, 5),
    (faults.driver_hangs, 4),
    (faults.hardware_errs, 4),
    (faults.unbooked_process_starts, 6),
    (faults.unbooked_processes_end, 2),
    (faults.frozen_dies, 6),
    (faults.disk_fills, 2),
    (faults.clock_jumps, 3),
    (faults.backup_comes_back, 2),
)


def weighted(storm: float) -> tuple[tuple[Action, ...], tuple[float, ...]]:
    """All of them with their weights; in a `storm` of less than 1 not much goes wrong."""
    found = (*LIFE, *((action, storm * weight) for action, weight in FAULTS))
    return tuple(action for action, _ in found), tuple(weight for _, weight in found)
