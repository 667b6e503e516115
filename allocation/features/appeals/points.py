"""What appeals add to the core: what waits for an answer, sentences and words."""

from collections.abc import Iterator
from datetime import datetime

from allocation.features.appeals.services import appeals_to_answer
from allocation.points import TASKS, Task
from allocation.words.refusals import sentences_add
from tenants.access import Actor
from tenants.rules.audit_words import ACTIONS, NAMED_BY


def _tasks(actor: Actor | None, now: datetime) -> Iterator[Task]:
    count = appeals_to_answer(actor).count()
    if count:
        text = f"{count} contested pause{'s' if count > 1 else ''}"
        yield Task(text, f"/t/{actor.tenant_slug}/appeals" if actor else "/ops/appeals", "pause")


TASKS.append(_tasks)
sentences_add(
    {
        "appeal_late": "A pause can be contested within %(days)s days of its notice.",
        "appeal_twice": "This pause was contested already. Its answer is final.",
        "appeal_answered": "This objection was %(said)s already.",
        "appeal_outcome": "Choose whether the objection is right.",
        "appeal_own": "Somebody else answers your own objection.",
        "appeal_operators": "The platform's operators answer this objection.",
    }
)
ACTIONS["appeal.raised"] = "contested a pause of booking {object}"
ACTIONS["appeal.answered"] = "answered an objection to a pause of booking {object}"
NAMED_BY["appeal"] = ("booking",)
