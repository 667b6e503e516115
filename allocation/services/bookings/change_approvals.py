"""Changes of bookings that need an approval. They are refused until a change can wait for one."""

from copy import copy
from datetime import datetime

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.approval_requests import rules_in_force, rules_met
from allocation.services.record.refusals import refusal
from allocation.services.record.terms import Terms
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.models import Tier


def approval_check(actor: Actor, booking: Booking, terms: Terms, now: datetime) -> None:
    """Raises Refused `approval_needed` if the booking as a whole, with these terms, meets a rule.

    A request that waits for its approval stays as the approvers see it.
    """
    changed = copy(booking)
    for name, value in terms.facts().items():
        setattr(changed, name, value)
    changed.tier = Tier.objects.get(slug=terms.tier)
    units = {changed.id: ask_units(AskDocument.from_json(terms.ask))}
    if booking.state == State.AWAITING_APPROVAL:
        sentence = refusal_text("change_while_approval", label=booking.label)
        raise refusal("approval_needed", sentence, "conflict", "request")
    rules = rules_met(rules_in_force(actor, changed.project_id), [changed], units, now)
    if rules:
        names = ", ".join(rule.name for rule in rules)
        sentence = refusal_text("approval_needed", rules=names, label=booking.label)
        raise refusal("approval_needed", sentence, "conflict", "request")
