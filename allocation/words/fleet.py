"""Sentences about nodes and GPUs: their history, the reasons of their states, and differences.

Rows keep the code of a sentence and its facts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy
from django.utils.translation import gettext as _

import wire

MODE_WORDS = {"whole": gettext_lazy("whole GPU"), "sliced": gettext_lazy("slices")}
LONGEST_FACT = 200


@dataclass(frozen=True, slots=True)
class FleetText:
    """The code of a sentence and its facts: numbers, names or other texts."""

    code: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        """Returns the sentence in the active language. KeyError: no such sentence or fact."""
        return fleet_sentence(self.data())

    def data(self) -> dict[str, Any]:
        """Returns code and facts as JSON. Texts of agents and people are cut."""
        return {"fleet": self.code, "facts": {n: _as_data(f) for n, f in self.facts.items()}}


def fleet_text(code: str, /, **facts: Any) -> FleetText:  # noqa: ANN401 (facts of any kind)
    """Returns the text of a code with its facts."""
    return FleetText(code, facts)


def locked_out_text(reason: str) -> FleetText:
    """The reason of a drain of a node whose agent is locked out."""
    return fleet_text("drained_locked_out", reason=reason)


def fleet_sentence(stored: Mapping[str, Any] | str) -> str:
    """Returns the sentence of a stored text. A string is the sentence of an older row."""
    if isinstance(stored, str):
        return stored
    text = SENTENCES[stored["fleet"]]
    facts = {
        name: fleet_sentence(fact).rstrip(".") if isinstance(fact, Mapping) else fact
        for name, fact in stored["facts"].items()
    }
    return text(facts) if callable(text) else str(text % facts)


def mode_text(mode: str) -> FleetText:
    """The text of a MIG mode."""
    return fleet_text(f"mode_{mode}")


def _as_data(fact: Any) -> Any:  # noqa: ANN401 (facts of any kind)
    if isinstance(fact, FleetText):
        return fact.data()
    return fact[:LONGEST_FACT] if isinstance(fact, str) else fact


def escalation_text(warn_after: int | None, end_after: int | None) -> FleetText:
    """The text of `escalation_words`."""
    return fleet_text("escalation", warn_after=warn_after, end_after=end_after)


def escalation_words(warn_after: int | None, end_after: int | None) -> str:
    """`Processes without a booking are reported, warned after 2 min, ended after 10 min.`"""
    minutes = (None if each is None else each // 60 for each in (warn_after, end_after))
    return _("Processes without a booking are %(actions)s.") % {"actions": escalation_actions(*minutes)}


def escalation_actions(warn_minutes: int | None, end_minutes: int | None) -> str:
    """`reported, warned after 2 min, ended after 10 min`."""
    actions = [_("reported")]
    if warn_minutes is not None:
        actions.append(_("warned after %(minutes)s min") % {"minutes": warn_minutes})
    if end_minutes is not None:
        actions.append(_("ended after %(minutes)s min") % {"minutes": end_minutes})
    return ", ".join(actions)


def _escalation(facts: Mapping[str, Any]) -> str:
    return escalation_words(facts["warn_after"], facts["end_after"])


SENTENCES: dict[str, Callable[[Mapping[str, Any]], str] | Promise] = {
    # What nodes report.
    "gpu_lost": gettext_lazy("The agent no longer finds it."),
    "driver_hang": gettext_lazy("The driver does not return from a call about it."),
    "unreachable": gettext_lazy("It does not answer and gets no new bookings."),
    "unready": gettext_lazy(
        "%(booking)s ended without a report that its devices were ready; it paid nothing."
    ),
    "conflicts": gettext_lazy("Times that its node contradicted the portal within a day: %(times)s."),
    "lease_contradicted": gettext_lazy("%(node)s reports an expired lease of %(booking)s, but it answered."),
    "run_over_early": gettext_lazy(
        "GPU %(index)s of %(node)s reports %(booking)s as over early (%(error)s)."
    ),
    "slice_without_booking": gettext_lazy("A slice %(profile)s at slot %(slot)s that belongs to no booking."),
    "processes_without_booking": ngettext_lazy(
        "%(processes)s process without a booking: %(users)s.",
        "%(processes)s processes without a booking: %(users)s.",
        "processes",
    ),
    "processes_outside_booking": ngettext_lazy(
        "%(processes)s process outside the booking: %(users)s.",
        "%(processes)s processes outside the booking: %(users)s.",
        "processes",
    ),
    "unknown_users": gettext_lazy("unknown users"),
    "unknown_user": gettext_lazy("an unknown user"),
    "process_warned": gettext_lazy(
        "Process %(pid)s of %(user)s was warned on its terminals that it has no booking there."
    ),
    "process_asked": gettext_lazy("Process %(pid)s of %(user)s was asked to end."),
    "process_killed": gettext_lazy("Process %(pid)s of %(user)s was ended."),
    "starts_waiting": ngettext_lazy(
        "%(count)s booking waits to start on this node.",
        "%(count)s bookings wait to start on this node.",
        "count",
    ),
    "unbooked_use": gettext_lazy("Processes without a booking are on it."),
    "no_answer": gettext_lazy("Its driver does not answer."),
    "withheld": gettext_lazy("Nothing new starts on it: %(why)s."),
    "mode_stuck": gettext_lazy("Its mode can't be changed: %(error)s"),
    "no_error": gettext_lazy("no reason given"),
    "check_failed": gettext_lazy("The check of %(check)s fails: %(seen)s. Fix: %(fix)s."),
    # Errors of hardware.
    "hardware_error": gettext_lazy("%(error)s: %(cause)s."),
    "xid": gettext_lazy("Xid %(number)s"),
    "ecc": ngettext_lazy("ECC, %(bits)s bit", "ECC, %(bits)s bits", "bits"),
    "xid_48": gettext_lazy("a memory error that could not be corrected; the GPU needs a reset"),
    "xid_62": gettext_lazy("a controller inside the GPU has halted; the GPU needs a reset"),
    "xid_63": gettext_lazy("a memory row is to be replaced at the next reset"),
    "xid_64": gettext_lazy("a bad memory row could not be replaced"),
    "xid_74": gettext_lazy("an NVLink connection failed"),
    "xid_79": gettext_lazy("the GPU has fallen off the bus"),
    "xid_92": gettext_lazy("many corrected memory errors in a short time"),
    "xid_94": gettext_lazy("a memory error, contained in one slice or program"),
    "xid_95": gettext_lazy("a memory error that was not contained; the GPU needs a reset"),
    "xid_119": gettext_lazy("the GPU's firmware (GSP) does not answer; the GPU needs a reset"),
    "xid_120": gettext_lazy("the GPU's firmware (GSP) has failed; the GPU needs a reset"),
    "xid_140": gettext_lazy("a memory error that was not recovered; the GPU needs a reset"),
    "xid_143": gettext_lazy("the GPU could not be initialised; it needs a reset"),
    "xid_145": gettext_lazy("an NVLink error (RLW); the GPU needs a reset"),
    "xid_146": gettext_lazy("an NVLink error (TLW); the GPU needs a reset"),
    "xid_147": gettext_lazy("an NVLink error (TREX); the GPU needs a reset"),
    "xid_148": gettext_lazy("an NVLink error (NVLPW control); the GPU needs a reset"),
    "xid_149": gettext_lazy("an NVLink error (NETIR); the GPU needs a reset"),
    "xid_150": gettext_lazy("an NVLink error (MSE); the GPU needs a reset"),
    "xid_154": gettext_lazy("the driver asks for the node to be restarted"),
    "driver_none": gettext_lazy("the driver asks for nothing any more"),
    "driver_reset": gettext_lazy("the driver asks for the GPU to be reset"),
    "driver_drain": gettext_lazy("the driver asks for the GPU to be emptied, then reset"),
    "ecc_1": gettext_lazy("corrected memory errors"),
    "ecc_2": gettext_lazy("a memory error that could not be corrected"),
    "error_unknown": gettext_lazy("an error of the driver or of an application"),
    # Differences of an inventory.
    "gpu_new": gettext_lazy("GPU %(index)s is new: %(model)s, %(uuid)s."),
    "gpu_moved": gettext_lazy("GPU %(index)s moved from %(before)s to %(after)s."),
    "gpu_twice": gettext_lazy("%(uuid)s is reported twice."),
    "gpu_index_taken": gettext_lazy("GPU %(index)s (%(uuid)s) has the index of another."),
    "gpu_elsewhere": gettext_lazy("GPU %(index)s (%(uuid)s) is already known on %(node)s."),
    "model_unknown": gettext_lazy(
        "GPU %(index)s is a %(model)s, and no model of that name is in the catalogue."
    ),
    "models_known": gettext_lazy("Its GPUs are in the catalogue now. Approve the node to plan work on it."),
    "domain": gettext_lazy("NVLink domain %(number)s"),
    "no_domain": gettext_lazy("no NVLink domain"),
    "mode_whole": gettext_lazy("whole GPU"),
    "mode_sliced": gettext_lazy("slices"),
    "escalation": _escalation,
    # Actions of operators and of the portal.
    "mode_change": gettext_lazy("Changes from %(before)s to %(after)s by a reset, while it is empty."),
    "mode_pinned": gettext_lazy("%(operator)s pinned it to %(mode)s%(note)s."),
    "mode_unpinned": gettext_lazy("%(operator)s unpinned its mode%(note)s."),
    "gpu_returned": gettext_lazy("%(operator)s returned it to service: %(note)s. It was out: %(reason)s."),
    "fenced": gettext_lazy("%(operator)s states that it is off: %(note)s."),
    "approved": gettext_lazy("Approved by %(operator)s, %(at)s UTC"),
    "locked_out": gettext_lazy("Its agent was locked out by %(operator)s, %(at)s UTC; enrol it again"),
    "rate_exceeded": gettext_lazy(
        "Its agent exceeded its message rate and was locked out, %(at)s UTC; enrol it again"
    ),
    "drained": gettext_lazy("%(reason)s (%(operator)s, %(at)s UTC)"),
    "machine_expected": gettext_lazy("A machine of %(provider)s is expected."),
    "machine_gone": gettext_lazy("Its machine was given back to %(provider)s."),
    "machine_leaves": gettext_lazy("Its machine goes back to %(provider)s. %(why)s"),
    "drained_by": gettext_lazy("%(reason)s (%(operator)s, %(at)s UTC; empty by %(by)s UTC)"),
    "drained_locked_out": gettext_lazy("Its agent is locked out; enrol it again. Drained: %(reason)s"),
    "maintenance_planned": gettext_lazy("%(operator)s planned maintenance: %(reason)s%(repeated)s."),
    "maintenance_changed": gettext_lazy(
        "%(operator)s changed maintenance: %(reason)s, %(starts)s to %(ends)s UTC."
    ),
    "maintenance_ended": gettext_lazy("%(operator)s ended maintenance: %(reason)s."),
    "maintenance_series_ended": gettext_lazy(
        "%(operator)s ended maintenance: %(reason)s and %(dates)s later dates."
    ),
    "escalation_set": gettext_lazy("%(operator)s set: %(escalation)s."),
    "escalation_follows_policy": gettext_lazy("%(operator)s set: follows the policy. %(escalation)s."),
    "escalation_by_policy": gettext_lazy("The policy changed. %(escalation)s."),
    # Leases of nodes during a planned outage.
    "lease_confirmed": gettext_lazy("Its agent holds a lease to the end of the outage."),
    "lease_waiting": gettext_lazy(
        "Its agent has not confirmed the longer lease yet. This takes about ten seconds."
    ),
    "lease_not_heard": gettext_lazy(
        "Its agent does not answer. Work on its lease ends by itself and starts again elsewhere."
    ),
    "lease_too_old": gettext_lazy(
        "Its agent is too old to confirm. The longer lease was sent with the answer to its last "
        "heartbeat; it is not known whether it arrived."
    ),
    "lease_cut_off": gettext_lazy("It has no lease. Its work on leases has ended."),
}


def check_text(code: str, facts: Mapping[str, str], stored: str) -> str:
    """Returns a text of `doctor` by its code; as the agent wrote it if its version is unknown."""
    text = wire.CHECK_TEXTS.get(code)
    if text is None:
        return stored
    try:
        return gettext(text) % facts
    except KeyError:
        return stored
