"""What messages that are not about one booking say to people, from their payloads alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from allocation.features.disputes.services import ANSWERED, RAISED
from allocation.features.reports.services import DUE
from allocation.services.record.variances import VARIANCE
from allocation.words.variances import (
    variance_explained,
    variance_headline,
    variance_sentence,
)
from billing.rules import Period, money_text, period_text
from billing.services.guardrails import MEASURED
from tenants.services.policy_hooks.calls import FAILING


def hook_headline(said: Mapping[str, Any]) -> str:
    """The headline, from the payload of the message."""
    return f"The policy hook failed {said['failures']} times in a row"


def hook_sentences(said: Mapping[str, Any]) -> tuple[str, ...]:
    """The last failure, and what happens to requests meanwhile."""
    effect = "admitted" if said["is_fail_open"] else "refused"
    return (
        f"{said['url']}: {said['error']}",
        f"Requests without a valid answer are {effect}. It is asked again every 30 s.",
    )


LADDER_ACTIONS = {
    "approval": "New bookings wait for an approval",
    "cheaper": "Waiting work on several classes takes the cheapest of them; the project's page"
    " offers a cheaper class for what has one",
    "no_borrowing": "Bookings start only on GPUs within guarantees; what runs stays",
    "pause": "What runs is paused after its notice, and no booking starts",
    "drain": "No booking starts; what runs stays",
    "no_bookings": "It takes no new bookings; bookings stay",
}


def budget_headline(said: Mapping[str, Any]) -> str:
    """The headline, from the payload of the rung's message."""
    return f"Budget of {said['name']}: {said['percent']} % {MEASURED[said['measure']]}"


def budget_sentences(said: Mapping[str, Any]) -> tuple[str, ...]:
    """The figures, and what the rung does."""
    period = Period(date.fromisoformat(said["starts"]), date.fromisoformat(said["ends"]))
    amount, spent, held, left = (
        money_text(Decimal(said[name]), said["currency"]) for name in ("amount", "spent", "held", "left")
    )
    if said["measure"] == "unit_cost":
        cost, most = (
            money_text(Decimal(said[name]), said["currency"]) for name in ("unit_cost", "unit_most")
        )
        sentence = f"{said['units'].capitalize()} have cost {cost}; at most {most} is set."
        acts = LADDER_ACTIONS.get(said["action"])
        return (sentence, f"{acts} until they cost less, or the limit is higher.") if acts else (sentence,)
    sentence = (
        f"At least {said['percent']} % of the budget for {period_text(period)} are"
        f" {MEASURED[said['measure']]}: {spent} spent, {held} held by bookings,"
        f" {left} left of {amount}."
    )
    if said["action"] in LADDER_ACTIONS:
        return (sentence, f"{LADDER_ACTIONS[said['action']]} until the share is lower.")
    return (sentence,)


BUDGET = "budget.threshold_reached"


@dataclass(frozen=True, slots=True)
class Words:
    """A headline, sentences, the page below the tenant's address, and the text of its link."""

    headline: str
    sentences: tuple[str, ...]
    path: str
    link: str


def words_of(kind: str, said: Mapping[str, Any]) -> Words | None:
    """The words of a message; None for kinds that have none."""
    write = _WRITERS.get(kind)
    return write(said) if write else None


def _budget(said: Mapping[str, Any]) -> Words:
    path = f"budgets/{said['budget']}"
    return Words(budget_headline(said), budget_sentences(said), path, "Open the budget")


def _hook(said: Mapping[str, Any]) -> Words:
    path = "settings/policy-hook"
    return Words(hook_headline(said), hook_sentences(said), path, "Open the policy hook")


def _variance(said: Mapping[str, Any]) -> Words:
    sentences = (variance_sentence(said), variance_explained(said))
    path = f"budgets/{said['budget']}/variance?day={said['day']}"
    return Words(variance_headline(said), sentences, path, "See the causes")


def _report(said: Mapping[str, Any]) -> Words:
    query = {"month": said["starts"][:7]}
    if said["project_slug"]:
        query["project"] = said["project_slug"]
    headline = f"Statement of {said['name']}, {said['days']}"
    return Words(headline, (), f"statements?{urlencode(query)}", "Open the statement")


def _raised(said: Mapping[str, Any]) -> Words:
    sentences = (
        f"{said['raised_by']}: {said['note']}",
        "An operator answers it. Nothing is corrected before that.",
    )
    return Words(f"{_disputed(said)} is disputed", sentences, _statement(said), "Open the statement")


def _answered(said: Mapping[str, Any]) -> Words:
    accepted = said["state"] == "accepted"
    sentences = (
        f"Answer: {said['answer']}",
        "What is wrong is corrected apart, as a line of the statement."
        if accepted
        else "The charges stay as they are.",
    )
    headline = f"{_disputed(said)}: the dispute was {said['state']}"
    return Words(headline, sentences, _statement(said), "Open the statement")


def _disputed(said: Mapping[str, Any]) -> str:
    what = f"The statement {said['month']} of {said['name']}"
    return f"{said['booking']} in the statement {said['month']}" if said["booking"] else what


def _statement(said: Mapping[str, Any]) -> str:
    query = {"month": said["month"]}
    if said["project_slug"]:
        query["project"] = said["project_slug"]
    return f"statements?{urlencode(query)}#disputes"


_WRITERS: Mapping[str, Callable[[Mapping[str, Any]], Words]] = {
    BUDGET: _budget,
    FAILING: _hook,
    VARIANCE: _variance,
    DUE: _report,
    RAISED: _raised,
    ANSWERED: _answered,
}
