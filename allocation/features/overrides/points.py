"""What overrides add to the core: requests that wait, a task, sentences and words."""

from collections.abc import Iterator
from datetime import datetime

from allocation.features.overrides.tasks import allocation_overrides
from allocation.models import Override
from allocation.points import TASKS, Task
from allocation.words.refusals import sentences_add
from tenants.access import Actor
from tenants.rules.audit_words import ACTIONS
from tenants.web.parts import counted

__all__ = ["allocation_overrides"]
Decider = Override.Decider


def _tasks(actor: Actor | None, now: datetime) -> Iterator[Task]:
    waiting = Override.objects.filter(state=Override.State.ASKED)
    if actor is None:
        waiting = waiting.filter(decider=Decider.OPERATOR)
    elif actor.is_tenant_admin:
        mine = [Decider.TENANT_ADMIN, Decider.LEAD]
        waiting = waiting.filter(tenant_id=actor.tenant_id, decider__in=mine)
    else:
        led = [each for each in actor.roles if actor.may_lead(each)]
        waiting = waiting.filter(tenant_id=actor.tenant_id, decider=Decider.LEAD, project__in=led)
    if count := waiting.count():
        base = "/ops/" if actor is None else f"/t/{actor.tenant_slug}/"
        yield Task(f"{counted(count, 'request')} for more than a limit", f"{base}overrides", "plus")


TASKS.append(_tasks)
sentences_add(
    {
        "override_kind": "There is no such limit. Choose one of: %(known)s.",
        "override_amount": "Enter how much more is needed: a number above zero.",
        "override_until": "Choose an end in the future, within two years.",
        "decline_reason": "Give a reason of at most %(most)s characters.",
        "override_reason": "A reason has at most %(most)s characters.",
        "override_never_once": "More of this can be had until a date, not for one booking.",
        "override_asked": "You have asked for this already. It waits for its decision.",
        "too_many_overrides": "You have %(most)s requests that wait for a decision. Withdraw one first.",
        "override_own": "You asked for this, so another person decides.",
        "override_of_another": "Only the person who asked can withdraw a request.",
        "override_over": "This is %(state)s already.",
        "override_left": (
            "%(who)s can't book in %(place)s any more, so nothing can be granted. Decline the request."
        ),
        "override_decider": "This limit is set by %(who)s, who decides.",
    }
)
ACTIONS["override.asked"] = "asked for more than a limit allows"
ACTIONS["override.declined"] = "declined a request for more"
ACTIONS["override.ended"] = "ended an exception from a limit"
ACTIONS["override.granted"] = "granted an exception from a limit"
ACTIONS["override.withdrawn"] = "withdrew a request for more"
