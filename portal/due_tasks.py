"""Which tasks of beat have something to do, asked in one statement.

Most of these run as soon as somebody requests them, and beat sends them for the time that has come
and for requests that were lost. At rest that is nearly never.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from django.db import DatabaseError, connections

from allocation.features.capacity.causes.backlog import backlogs_due
from allocation.features.capacity.causes.forecast import forecasts_due
from allocation.features.capacity.turn import bookings_due, capacity_due
from allocation.features.exports.models import StatementExport
from allocation.features.hand_overs.services import hand_overs_over
from allocation.features.jira.models import JiraMessage
from allocation.features.limit_cuts.enforce import cuts_open
from allocation.features.notebooks.services import notebooks_unordered
from allocation.features.policy_lab.shadows import shadows_due
from allocation.features.policy_lab.trials import trials_unserved
from allocation.features.scripts.services import scripts_ended
from allocation.services.decide.cycle import tick_has_work
from allocation.services.publish.publish import nodes_unpublished
from billing.queries import rungs_to_mark
from portal.integrations.mail.send import WAITING
from tenants.models import ChatMessage, Mail, OutboxMessage, PasswordReset
from tenants.platform.database.look import Look, Question

logger = logging.getLogger(__name__)

# A task that had nothing to do is sent after this time all the same: what these questions overlook
# is late by so much, and a program that gets no task does not seem to be dead.
LONGEST_SECONDS = 30.0
_TICK = "allocation.tick"
_QUESTIONS: Mapping[str, Question] = {
    "allocation.exports": lambda _: StatementExport.objects.filter(finished_at=None),
    "allocation.publish": lambda _: nodes_unpublished(),
    "billing.guardrails": rungs_to_mark,
    "capacity.turn": capacity_due,
    "burst": bookings_due,
    "backlogs": backlogs_due,
    "hand_overs.expire": hand_overs_over,
    "forecasts": forecasts_due,
    "limit_cuts.enforce": lambda _: cuts_open(),
    "chat.send": lambda now: ChatMessage.objects.filter(state=ChatMessage.State.PENDING, due__lte=now),
    "jira.process": lambda _: JiraMessage.objects.filter(state=JiraMessage.State.RECEIVED),
    "mail.send": lambda now: Mail.objects.filter(WAITING, due__lte=now),
    "notebooks.orders": notebooks_unordered,
    "policy_lab.shadows": shadows_due,
    "policy_lab.trials": trials_unserved,
    "scripts.ended": lambda _: scripts_ended(),
    "outbox.relay": lambda _: OutboxMessage.objects.filter(sent=None),
    "resets": lambda _: PasswordReset.objects.all(),
}
# Another question of a task.
_TASK_OF = {
    "resets": "mail.send",
    "burst": "capacity.turn",
    "backlogs": "capacity.turn",
    "forecasts": "capacity.turn",
}
ASKED = frozenset({_TICK, *_QUESTIONS} - _TASK_OF.keys())
"""The tasks that are sent only if there is something to do."""


class DueTasks:
    """Decides for one beat; `steady` never jumps."""

    def __init__(self, clock: Callable[[], datetime], steady: Callable[[], float] = time.monotonic) -> None:
        """A new beat sends each task once, whatever there is to do."""
        self._clock, self._steady = clock, steady
        self._look = Look(_QUESTIONS)
        self._sent: dict[str, float] = {}

    def needed(self, tasks: Collection[str]) -> list[str]:
        """Returns those of the tasks that are to be sent now, in the same order.

        While the database does not answer, all of them: each waits for it by itself.
        """
        at = self._steady()
        rested = {
            name
            for name in ASKED.intersection(tasks)
            if at - self._sent.get(name, -LONGEST_SECONDS) < LONGEST_SECONDS
        }
        idle = rested - self._with_work(rested) if rested else rested
        found = [name for name in tasks if name not in idle]
        self._sent.update(dict.fromkeys(ASKED.intersection(found), at))
        return found

    def _with_work(self, tasks: Collection[str]) -> set[str]:
        now = self._clock()
        try:
            found = {_TASK_OF.get(name, name) for name in self._look(now)}
            if _TICK in tasks and tick_has_work(now):
                found.add(_TICK)
        except DatabaseError as error:
            logger.warning("Beat sends all tasks, because the database did not answer: %s", error)
            connections.close_all()
            return set(tasks)
        return found
