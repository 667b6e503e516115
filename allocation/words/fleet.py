"""Sentences about nodes and GPUs: their history, the reasons of their states, and differences.

Rows keep the code of a sentence and its facts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import wire
from tenants.platform.nouns import Plural, Sentence

MODE_WORDS = {"whole": "whole GPU", "sliced": "slices"}
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
    return f"Processes without a booking are {escalation_actions(*minutes)}."


def escalation_actions(warn_minutes: int | None, end_minutes: int | None) -> str:
    """`reported, warned after 2 min, ended after 10 min`."""
    actions = ["reported"]
    if warn_minutes is not None:
        actions.append(f"warned after {warn_minutes} min")
    if end_minutes is not None:
        actions.append(f"ended after {end_minutes} min")
    return ", ".join(actions)


def _escalation(facts: Mapping[str, Any]) -> str:
    return escalation_words(facts["warn_after"], facts["end_after"])


SENTENCES: dict[str, Callable[[Mapping[str, Any]], str] | Sentence] = {
    # What nodes report.
    "gpu_lost": "The agent no longer finds it.",
    "driver_hang": "The driver does not return from a call about it.",
    "unreachable": "It does not answer and gets no new bookings.",
    "unready": "%(booking)s ended without a report that its devices were ready; it paid nothing.",
    "conflicts": "Times that its node contradicted the portal within a day: %(times)s.",
    "lease_contradicted": "%(node)s reports an expired lease of %(booking)s, but it answered.",
    "run_over_early": "GPU %(index)s of %(node)s reports %(booking)s as over early (%(error)s).",
    "slice_without_booking": "A slice %(profile)s at slot %(slot)s that belongs to no booking.",
    "processes_without_booking": Plural(
        "%(processes)s process without a booking: %(users)s.",
        "%(processes)s processes without a booking: %(users)s.",
        "processes",
    ),
    "processes_outside_booking": Plural(
        "%(processes)s process outside the booking: %(users)s.",
        "%(processes)s processes outside the booking: %(users)s.",
        "processes",
    ),
    "unknown_users": "unknown users",
    "unknown_user": "an unknown user",
    "process_warned": "Process %(pid)s of %(user)s was warned on its terminals that it has no booking there.",
    "process_asked": "Process %(pid)s of %(user)s was asked to end.",
    "process_killed": "Process %(pid)s of %(user)s was ended.",
    "starts_waiting": Plural(
        "%(count)s booking waits to start on this node.",
        "%(count)s bookings wait to start on this node.",
        "count",
    ),
    "unbooked_use": "Processes without a booking are on it.",
    "no_answer": "Its driver does not answer.",
    "withheld": "Nothing new starts on it: %(why)s.",
    "mode_stuck": "Its mode can't be changed: %(error)s",
    "no_error": "no reason given",
    "check_failed": "The check of %(check)s fails: %(seen)s. Fix: %(fix)s.",
    # Errors of hardware.
    "hardware_error": "%(error)s: %(cause)s.",
    "xid": "Xid %(number)s",
    "ecc": Plural("ECC, %(bits)s bit", "ECC, %(bits)s bits", "bits"),
    "xid_48": "a memory error that could not be corrected; the GPU needs a reset",
    "xid_62": "a controller inside the GPU has halted; the GPU needs a reset",
    "xid_63": "a memory row is to be replaced at the next reset",
    "xid_64": "a bad memory row could not be replaced",
    "xid_74": "an NVLink connection failed",
    "xid_79": "the GPU has fallen off the bus",
    "xid_92": "many corrected memory errors in a short time",
    "xid_94": "a memory error, contained in one slice or program",
    "xid_95": "a memory error that was not contained; the GPU needs a reset",
    "xid_119": "the GPU's firmware (GSP) does not answer; the GPU needs a reset",
    "xid_120": "the GPU's firmware (GSP) has failed; the GPU needs a reset",
    "xid_140": "a memory error that was not recovered; the GPU needs a reset",
    "xid_143": "the GPU could not be initialised; it needs a reset",
    "xid_145": "an NVLink error (RLW); the GPU needs a reset",
    "xid_146": "an NVLink error (TLW); the GPU needs a reset",
    "xid_147": "an NVLink error (TREX); the GPU needs a reset",
    "xid_148": "an NVLink error (NVLPW control); the GPU needs a reset",
    "xid_149": "an NVLink error (NETIR); the GPU needs a reset",
    "xid_150": "an NVLink error (MSE); the GPU needs a reset",
    "xid_154": "the driver asks for the node to be restarted",
    "driver_none": "the driver asks for nothing any more",
    "driver_reset": "the driver asks for the GPU to be reset",
    "driver_drain": "the driver asks for the GPU to be emptied, then reset",
    "ecc_1": "corrected memory errors",
    "ecc_2": "a memory error that could not be corrected",
    "error_unknown": "an error of the driver or of an application",
    # Differences of an inventory.
    "gpu_new": "GPU %(index)s is new: %(model)s, %(uuid)s.",
    "gpu_moved": "GPU %(index)s moved from %(before)s to %(after)s.",
    "gpu_twice": "%(uuid)s is reported twice.",
    "gpu_index_taken": "GPU %(index)s (%(uuid)s) has the index of another.",
    "gpu_elsewhere": "GPU %(index)s (%(uuid)s) is already known on %(node)s.",
    "model_unknown": "GPU %(index)s is a %(model)s, and no model of that name is in the catalogue.",
    "models_known": "Its GPUs are in the catalogue now. Approve the node to plan work on it.",
    "domain": "NVLink domain %(number)s",
    "no_domain": "no NVLink domain",
    "mode_whole": "whole GPU",
    "mode_sliced": "slices",
    "escalation": _escalation,
    # Actions of operators and of the portal.
    "mode_change": "Changes from %(before)s to %(after)s by a reset, while it is empty.",
    "mode_pinned": "%(operator)s pinned it to %(mode)s%(note)s.",
    "mode_unpinned": "%(operator)s unpinned its mode%(note)s.",
    "gpu_returned": "%(operator)s returned it to service: %(note)s. It was out: %(reason)s.",
    "fenced": "%(operator)s states that it is off: %(note)s.",
    "approved": "Approved by %(operator)s, %(at)s UTC",
    "locked_out": "Its agent was locked out by %(operator)s, %(at)s UTC; enrol it again",
    "rate_exceeded": "Its agent exceeded its message rate and was locked out, %(at)s UTC; enrol it again",
    "drained": "%(reason)s (%(operator)s, %(at)s UTC)",
    "machine_expected": "A machine of %(provider)s is expected.",
    "machine_gone": "Its machine was given back to %(provider)s.",
    "machine_leaves": "Its machine goes back to %(provider)s. %(why)s",
    "drained_by": "%(reason)s (%(operator)s, %(at)s UTC; empty by %(by)s UTC)",
    "drained_locked_out": "Its agent is locked out; enrol it again. Drained: %(reason)s",
    "maintenance_planned": "%(operator)s planned maintenance: %(reason)s%(repeated)s.",
    "maintenance_changed": "%(operator)s changed maintenance: %(reason)s, %(starts)s to %(ends)s UTC.",
    "maintenance_ended": "%(operator)s ended maintenance: %(reason)s.",
    "maintenance_series_ended": "%(operator)s ended maintenance: %(reason)s and %(dates)s later dates.",
    "escalation_set": "%(operator)s set: %(escalation)s.",
    "escalation_follows_policy": "%(operator)s set: follows the policy. %(escalation)s.",
    "escalation_by_policy": "The policy changed. %(escalation)s.",
    # Leases of nodes during a planned outage.
    "lease_confirmed": "Its agent holds a lease to the end of the outage.",
    "lease_waiting": "Its agent has not confirmed the longer lease yet. This takes about ten seconds.",
    (
        "lease_not_heard"
    ): "Its agent does not answer. Work on its lease ends by itself and starts again elsewhere.",
    "lease_too_old": (
        "Its agent is too old to confirm. The longer lease was sent with the answer to its last "
        "heartbeat; it is not known whether it arrived."
    ),
    "lease_cut_off": "It has no lease. Its work on leases has ended.",
}


def check_text(code: str, facts: Mapping[str, str], stored: str) -> str:
    """Returns a text of `doctor` by its code; as the agent wrote it if its version is unknown."""
    text = wire.CHECK_TEXTS.get(code)
    if text is None:
        return stored
    try:
        return text % facts
    except KeyError:
        return stored
