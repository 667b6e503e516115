"""What disputes add to the core: what waits for an operator, sentences and words."""

from collections.abc import Iterator
from datetime import datetime

from allocation.features.disputes.models import StatementDispute
from allocation.points import TASKS, Task
from allocation.words.refusals import sentences_add
from tenants.access import Actor
from tenants.rules.audit_words import ACTIONS, NAMED_BY
from tenants.web.parts import counted


def _tasks(actor: Actor | None, now: datetime) -> Iterator[Task]:
    if actor is not None:
        return
    count = StatementDispute.objects.filter(state=StatementDispute.State.OPEN).count()
    if count:
        yield Task(f"{counted(count, 'dispute')} of statements open", "/ops/disputes", "chat")


TASKS.append(_tasks)
sentences_add(
    {
        "month_not_begun": "This month has not begun.",
        "dispute_answered": "This dispute is %(said)s already.",
        "dispute_note": "Write 1 to %(longest)s visible characters.",
        "dispute_open": (
            "The same is disputed already, and an operator has not answered yet. Withdraw that dispute "
            "to write another note."
        ),
    }
)
ACTIONS["dispute.raised"] = "disputed the statement of {object}"
ACTIONS["dispute.answered"] = "answered a dispute of the statement of {object}"
ACTIONS["dispute.withdrawn"] = "withdrew a dispute of the statement of {object}"
NAMED_BY["dispute"] = ("month",)
