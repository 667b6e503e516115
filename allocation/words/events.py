"""The sentences of a booking's history.

An event keeps the code of its sentence and the facts. A sentence names no clock time: each page
adds `starts` or `until` in its reader's zone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from allocation.words.amounts import Facts
from allocation.words.fleet import FleetText, fleet_sentence
from allocation.words.reason_sentences import Text
from allocation.words.reasons import stored_sentence
from tenants.platform.nouns import Sentence, unit_text


@dataclass(frozen=True, slots=True)
class EventText:
    """The code of a sentence and its facts: numbers, names, reasons or other texts."""

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Returns the sentence in the active language. KeyError: no such sentence or fact."""
        text = _SENTENCES[self.code]
        facts = Facts({name: _as_text(fact) for name, fact in self.facts.items()})
        said = str(text(facts) if callable(text) else text % facts).strip()
        return unit_text(said, facts.of_class, are_cores="of_cores" in facts)

    def of_cores(self) -> "EventText":
        """Returns the text of a booking of host cores."""
        return EventText(self.code, {**self.facts, "of_cores": True})

    def data(self) -> dict[str, Any]:
        """Returns code and facts as JSON."""
        facts = {
            name: fact.data() if isinstance(fact, EventText | FleetText) else fact
            for name, fact in self.facts.items()
        }
        return {"code": self.code, "facts": facts}


def event_text(code: str, /, **facts: Any) -> EventText:  # noqa: ANN401 (facts of any kind)
    """Returns the text of a code with its facts."""
    return EventText(code, facts)


def event_sentences_add(
    sentences: Mapping[str, Sentence], until: Mapping[str, Sentence] = MappingProxyType({})
) -> None:
    """Adds the sentences of a feature, and by kind of event what its second time is."""
    _SENTENCES.update(sentences)
    _UNTIL.update(until)


def event_sentence(data: Mapping[str, Any]) -> str:
    """Returns the sentence of a stored text."""
    return str(EventText(data["code"], data["facts"]))


def _as_text(fact: Any) -> Any:  # noqa: ANN401 (facts of any kind)
    if isinstance(fact, FleetText):
        return str(fact).rstrip(".")
    if not isinstance(fact, Mapping):
        return str(fact) if isinstance(fact, EventText) else fact
    if "fleet" in fact:
        return fleet_sentence(fact).rstrip(".")
    return stored_sentence(fact) if "rule" in fact else event_sentence(fact)


def _expired(facts: Facts) -> str:
    if facts["charged"]:
        return "No GPUs were free in its window. %(charged)s is charged." % facts
    return "No GPUs were free in its window. Nothing is charged."


def _approved(facts: Facts) -> str:
    if facts["reason"]:
        return "Approved by %(actor)s: %(reason)s." % facts
    return "Approved by %(actor)s." % facts


def _paused(facts: Facts) -> str:
    first = "Paused: its hardware failed." if facts["is_broken"] else "Paused: the GPUs are cleared."
    charged = "%(charged)s charged for this run." % facts
    held = "%(held)s stays held for the rest." % facts
    if not facts["credit"]:
        return f"{first} {charged} {held}"
    credit = "%(credit)s of it is not charged, because that work has to be repeated." % facts
    return f"{first} {charged} {credit} {held}"


def _no_show(facts: Facts) -> str:
    first = "Nobody used it for %(minutes)s min; the GPUs are being cleared." % facts
    if not facts["share"]:
        return first
    share = "%(share)s %% of the time left is charged." % facts
    return f"{first} {share}"


def _idle_warned(facts: Facts) -> str:
    first = "All its GPUs were idle for %(minutes)s min." % facts
    if facts["action"] == "tell":
        return f"{first} Release it if it is not needed any more."
    what = (
        "If another booking can start earlier with them, it is paused in %(left)s min."
        if facts["action"] == "pause"
        else "If another booking can start earlier with them, it ends in %(left)s min."
    )
    answer = "Use them" if facts["vetoes"] == "0" else "Use them, or say that it is needed"
    return f"{first} {what % facts} {answer}."


def _at_risk(facts: Facts) -> str:
    if facts["borrowed_gpus"] == "1":
        return "The owner of a borrowed GPU needs it: this booking can be paused."
    text = "The owner of %(borrowed_gpus)s borrowed GPUs needs them: this booking can be paused."
    return text % facts


def _diverted(facts: Facts) -> str:
    # Events of before have no fact about the deadline.
    late = facts.get("late", "")
    first = "the cheapest class that meets the deadline" if late else "the cheapest class"
    text = f"By the project's choice {first} comes first: 1,000 %(unit)ss of %(workload)s cost %(costs)s."
    return text % facts + (f" It would be late on {late}." if late else "")


def _hook_admitted(facts: Facts) -> str:
    return _hook_words("The policy hook of %(tenant)s admitted this" % facts, facts)


def _hook_moved(facts: Facts) -> str:
    if not facts["to"]:
        text = "The policy hook of %(tenant)s narrowed the window"
    elif facts["window"]:
        text = "The policy hook of %(tenant)s moved the tier from %(from)s to %(to)s and narrowed the window"
    else:
        text = "The policy hook of %(tenant)s moved the tier from %(from)s to %(to)s"
    return _hook_words(text % facts, facts)


def _hook_words(text: str, facts: Facts) -> str:
    """A sentence, with the words of the hook if there are any."""
    return f"{text}: “{facts['words']}”" if facts["words"] else f"{text}."


_SENTENCES: dict[str, Text] = {
    "because": "%(because)s",
    # The request
    "requested": "Requested by %(actor)s; %(held)s held.",
    "diverted": _diverted,
    "burst": "It goes to a rented machine with %(gpu_class)s.",
    "burst_over": "There is no rented machine for it any more. It waits for the site's own GPUs.",
    "hook_admitted": _hook_admitted,
    "hook_moved": _hook_moved,
    "hook_passed": (
        "The policy hook of %(tenant)s gave no valid answer, so its rule for failures admitted "
        "this: %(error)s"
    ),
    "override_granted": "%(actor)s granted an exception from a limit.",
    "override_ended": "%(actor)s ended its exception from a limit.",
    (
        "limit_kept"
    ): "The limit of %(owner)s for %(gpu_class)s was lowered. This booking keeps its GPUs and its start.",
    "limit_drained": (
        "The limit of %(owner)s for %(gpu_class)s was lowered below what is booked. What runs stays; this "
        "booking has not begun, so it may start later than planned."
    ),
    "queued": "Waiting, with a planned start. %(because)s",
    "queued_unplanned": "Waiting, without a planned start. %(because)s",
    "scheduled": "Scheduled on %(nodes)s.",
    "scheduled_data": "Scheduled on %(nodes)s. %(because)s",
    "cores_raised": (
        "Free cores of its nodes are lent to it, up to %(most)s for each GPU: its GPUs were %(busy)s %% "
        "busy and its own cores %(cpu)s %%. They are taken back when another booking needs them."
    ),
    "cores_returned": "It has only its own host cores again.",
    "refused": "%(because)s %(freed)s is no longer held.",
    "waitlisted": "On the waiting list: booked as soon as its window is free. %(because)s",
    "offered": "Its window is free. Accept the offer in time, or the next entry on the waiting list gets it.",
    "window_free": "There is room in its window now: scheduled on %(nodes)s.",
    "unplaceable": "There are no GPUs for it.",
    "changed": "Changed by %(actor)s: %(what)s.",
    "change_made": "The change was made: %(what)s.",
    "undone": "%(actor)s undid the last change: %(what)s.",
    "undone_then": "The last change was undone: %(what)s.",
    "undo_asked": "%(actor)s asked to undo the last change: %(what)s.",
    "change_asked": "%(actor)s asked for a change: %(what)s.",
    "change_kept": "%(because)s %(why)s",
    "change_waits": "The change waits for room. Until then the booking keeps what it has. %(because)s",
    "change_declined": "The change was declined by %(actor)s: %(reason)s. The booking stays as it is.",
    "change_expired": "Nobody approved the change in time. The booking stays as it is.",
    "change_withdrawn": "%(actor)s withdrew the change.",
    (
        "late_refunded"
    ): "%(amount)s for GPUs that were given up late was refunded, because the change was undone.",
    "late_charged": (
        "%(amount)s charged: %(share)s %% of the price of GPUs that were given up less than "
        "%(notice)s min before."
    ),
    (
        "cancelled_owner_left"
    ): "Cancelled because %(owner)s can't book in %(project)s any more; %(freed)s is no longer held.",
    "cancelled_project_closed": "Cancelled because %(project)s was closed; %(freed)s is no longer held.",
    (
        "change_withdrawn_owner_left"
    ): "The change was withdrawn because %(owner)s can't book in %(project)s any more.",
    "change_withdrawn_project_closed": "The change was withdrawn because %(project)s was closed.",
    "cancelled": "Cancelled by %(actor)s; %(freed)s is no longer held.",
    "parents_over": "The bookings that it depends on are over.",
    # Hand-overs
    "hand_over_offered": "%(actor)s offered it to %(taker)s.",
    "hand_over_declined": "%(taker)s declined it; its owner stays.",
    "hand_over_withdrawn": "%(actor)s withdrew the offer to %(taker)s.",
    "hand_over_expired": "The offer to %(taker)s has expired; its owner stays.",
    "handed_over": "%(taker)s accepted it from %(giver)s and is its owner now.",
    # Approval
    "approval_requested": "Waits for an approval, by the rule %(rules)s.",
    "countered": "%(actor)s would approve this instead: %(what)s.",
    "approval_step": "%(actor)s approved one step. The next one is to be decided.",
    "approval_escalated": "Nobody decided in time, so it goes to the admins.",
    "approved": _approved,
    "declined": "Declined by %(actor)s: %(reason)s. %(freed)s is no longer held.",
    "place_kept": "A place is kept for it while it waits for its approval.",
    "place_lapsed": "Its place is kept no longer: the approval has not come in time.",
    "place_passed": "Others needed its place, so none is kept at the moment.",
    "approval_expired": "Nobody approved it in time. %(freed)s is no longer held.",
    # Ladders of budgets
    (
        "drained"
    ): "The budget of %(owner)s has reached %(percent)s %%: nothing new starts until its share is lower.",
    "drained_no_more": "No budget and no stop keeps it from starting any more.",
    "work_stopped": "Operators have stopped new work of %(owner)s: %(why)s. It waits until the stop is over.",
    "borrowing_stopped": (
        "The budget of %(owner)s has reached %(percent)s %%: it starts only on GPUs within "
        "guarantees until the share is lower."
    ),
    (
        "cheapest_only"
    ): "The budget of %(owner)s has reached %(percent)s %%, so it takes the cheapest of its classes.",
    "cheapest_no_more": "No budget keeps it on the cheapest of its classes any more.",
    "borrowing_allowed": "No budget keeps it from borrowed GPUs any more.",
    # Planned starts that change
    "start_later": "Its planned start is later now. %(because)s",
    "start_earlier": "Its planned start is earlier now.",
    "resume_later": "It is planned to resume later now. %(because)s",
    "resume_earlier": "It is planned to resume earlier now.",
    "rebound": (
        "Moved from %(source)s to %(target)s before its start, so that more bookings fit. "
        "Its time stays the same."
    ),
    "rebound_slots": (
        "Moved to other slots of %(source)s before its start, so that more bookings fit. "
        "Its time stays the same."
    ),
    "place_withdrawn": "%(cause)s Other GPUs are being found.",
    "early_room": "Its GPUs are free early, so its start is planned again.",
    "late_room": "The booking that is paused for it got more time, so its start is planned again.",
    "resume_missed": "The GPUs to resume on were not free in time. Other GPUs are being found.",
    # The run
    "starting": "Starting: the node prepares the GPUs.",
    "started": "Ready: the GPUs are handed over, and are charged from now on.",
    "resumed": "Resumed: the GPUs are handed over again, and are charged from now on.",
    "checked_in": "%(actor)s checked in.",
    "process_seen": "The first process was seen on its GPUs.",
    "ends_soon": "Ends soon. Extend it if its GPUs are free.",
    "no_show_warned": (
        "No process was seen for %(absent)s min. Start a program, check in or release the booking: "
        "in %(left)s min it ends as a no-show."
    ),
    "idle_warned": _idle_warned,
    "idle_over": "Its GPUs are in use again.",
    "still_needed": "%(actor)s said that its GPUs are still needed.",
    "idle_ended": (
        "Its GPUs were idle for %(minutes)s min and another booking can start with them. It is "
        "charged until now, without a fee; the GPUs are being cleared."
    ),
    "at_risk": _at_risk,
    # Pauses
    "pause_noticed": "To be paused. %(because)s %(method)s",
    "move_noticed": "To be paused and moved. %(because)s %(method)s",
    "stopped": "Stopped, not suspended: %(why)s.",
    "pause_withdrawn": (
        "The pause is withdrawn: the higher-priority booking does not need these GPUs any more. "
        "The booking keeps running; the time since the notice is charged as usual."
    ),
    "ordered_pause_withdrawn": (
        "The pause is withdrawn, because its reason is gone. The booking keeps running; the "
        "time since the notice is charged as usual."
    ),
    "more_time": "The pause is postponed to give more time to save.",
    "more_time_due": "The pause can't be postponed: it is due now.",
    "more_time_fixed": "The pause can't be postponed: the higher-priority booking can't start later.",
    "more_time_lost": "The pause can't be postponed: its hardware failed, so nothing is left to save.",
    "more_time_taken": "The pause can't be postponed: another booking has the GPUs after the deadline.",
    "saved": "Everything is saved: the grace period ends early.",
    "paused": _paused,
    "resuming": "Resumes on %(nodes)s.",
    "pause_contested": "%(actor)s contested pause %(number)s: %(reason)s",
    "pause_appeal_accepted": "%(actor)s agreed that pause %(number)s was not right: %(answer)s",
    "pause_appeal_declined": "%(actor)s answered that pause %(number)s was right: %(answer)s",
    # Interruptions
    "pause_broken": (
        "%(cause)s The booking is paused and resumes on other GPUs. Work that was not saved by the "
        "notice is not charged and has to be repeated."
    ),
    (
        "pause_lost"
    ): "%(cause)s The booking is paused and resumes on other GPUs. It is charged as for any pause.",
    "broken_off": (
        "%(cause)s The booking returns to its place in the queue with all of its time. This run is "
        "not charged."
    ),
    "broken_off_saved": (
        "%(cause)s The booking returns to its place in the queue with the time it has left. Work "
        "that was saved is charged and is not repeated."
    ),
    (
        "leave_by"
    ): "%(cause)s A booking that still runs there then starts again elsewhere, and this run is not charged.",
    "machine_leaves_by": (
        "The provider of %(node)s takes it back. The booking is paused before, and continues on other GPUs "
        "with the time it has left."
    ),
    "requeued": "%(cause)s The booking waits for other GPUs with the time it has left.",
    "gpu_out": "GPU %(index)s of %(node)s is out of service: %(why)s.",
    "gpu_error": "GPU %(index)s of %(node)s had an error. %(why)s.",
    "gpu_pinned": "An operator has set GPU %(index)s of %(node)s to %(mode)s.",
    "maintenance": "Maintenance of %(where)s: %(why)s.",
    "node_unreachable": "%(node)s does not answer.",
    "node_long_unreachable": "%(node)s has not answered for a long time.",
    "node_drained": "%(node)s is being drained: %(why)s.",
    "node_off": "%(node)s was switched off.",
    "node_closed": "%(node)s takes no bookings now.",
    "node_closed_why": "%(node)s takes no bookings now: %(why)s.",
    "lease_expired": "%(node)s lost its connection to the portal and ended the run.",
    "run_disputed": "%(node)s reports that the run is over early: %(why)s.",
    "result_success": "Its program has reported success.",
    "result_failure": "Its program has reported a failure.",
    # The end
    "time_over": "Its time is over; the GPUs are being cleared.",
    "start_failed": "The node could not start it: %(why)s",
    "released": "Released by %(actor)s; the GPUs are being cleared.",
    "released_paused": "Released by %(actor)s; %(freed)s is no longer held.",
    "no_show": _no_show,
    "cleared": "The GPUs are cleared. %(charged)s charged, %(freed)s no longer held.",
    "expired": _expired,
    "ended_paused": "%(because)s %(charged)s charged in all, %(freed)s no longer held.",
    "too_little_left": "Too little of its time is left to resume.",
    "window_over": "Its window ended while it was paused.",
    "refund_corrected": "The platform's operator refunded %(amount)s: %(why)s",
    "release_asked": "An operator asks to release this booking: %(message)s",
    "operator_message": "Message of the platform's operator: %(message)s",
    "charge_corrected": "The platform's operator charged %(amount)s: %(why)s",
    "no_resume": "There are no GPUs to resume on.",
}


_UNTIL: dict[str, Sentence] = {
    "place_kept": "Kept until",
    "pause_noticed": "Paused at",
    "more_time": "Paused at",
    "idle_warned": "Answer by",
    "leave_by": "Leave by",
    "no_show_warned": "Check in by",
    "change_waits": "Tried until",
}


def until_label(kind: str) -> str:
    """Returns what the second time of an event is: the end of the booking, unless its kind names a
    time of something else."""
    return str(_UNTIL.get(kind, "End"))


# Policy, maintenance, outages, freezes and stops.
_OF_SITE: dict[str, Sentence] = {
    "policy": "Version %(number)s of the policy is live.",
    "maintenance_planned": "Maintenance of %(where)s is planned: %(reason)s.",
    "maintenance_changed": "Maintenance of %(where)s has another time or reason: %(reason)s.",
    "maintenance_started": "Maintenance of %(where)s has begun: %(reason)s.",
    "maintenance_ended": "Maintenance of %(where)s is over: %(reason)s.",
    "maintenance_cancelled": "Maintenance of %(where)s is cancelled: %(reason)s.",
    "outage_begun": "The outage of the portal has begun: %(why)s.",
    "outage_closed": "The outage of the portal has closed the portal to changes: %(why)s.",
    "outage_ended": "The outage of the portal has ended: %(why)s.",
    "freeze_begun": "The freeze of decisions has begun: %(why)s.",
    "freeze_ended": "The freeze of decisions has ended: %(why)s.",
    "stop_begun": "The stop of new work of %(of)s has begun: %(why)s.",
    "stop_ended": "The stop of new work of %(of)s has ended: %(why)s.",
}


def site_event_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of an event. KeyError: no such event, or a fact is missing."""
    return str(_OF_SITE[code]) % facts
