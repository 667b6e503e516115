"""Sentences about nodes and GPUs: their history, the reasons of their states, and differences.

Rows keep the sentence as it was written.
"""

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

MODE_WORDS = {"whole": gettext_lazy("whole GPU"), "sliced": gettext_lazy("slices")}


def fleet_sentence(code: str, **facts: object) -> str:
    """Returns the sentence of a code with its facts.

    Raises:
        KeyError: no sentence for the code, or a fact is missing.
    """
    return str(SENTENCES[code] % facts)


def escalation_words(warn_after: int | None, end_after: int | None) -> str:
    """`Processes without a booking are reported, warned after 2 min, ended after 10 min.`"""
    minutes = (None if each is None else each // 60 for each in (warn_after, end_after))
    return _("Processes without a booking are %(actions)s.") % {
        "actions": escalation_actions(*minutes)
    }


def escalation_actions(warn_minutes: int | None, end_minutes: int | None) -> str:
    """`reported, warned after 2 min, ended after 10 min`."""
    actions = [_("reported")]
    if warn_minutes is not None:
        actions.append(_("warned after %(minutes)s min") % {"minutes": warn_minutes})
    if end_minutes is not None:
        actions.append(_("ended after %(minutes)s min") % {"minutes": end_minutes})
    return ", ".join(actions)


SENTENCES: dict[str, Promise] = {
    # What nodes report.
    "gpu_lost": gettext_lazy("The agent no longer finds it."),
    "driver_hang": gettext_lazy("The driver does not return from a call about it."),
    "unreachable": gettext_lazy("It does not answer and gets no new bookings."),
    "unready": gettext_lazy(
        "%(booking)s ended without a report that its devices were ready; it paid nothing."
    ),
    "conflicts": gettext_lazy("Its node contradicted the portal %(times)s times in a day."),
    "slice_without_booking": gettext_lazy(
        "A slice %(profile)s at slot %(slot)s that belongs to no booking."
    ),
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
    # Differences of an inventory.
    "gpu_new": gettext_lazy("GPU %(index)s is new: %(model)s, %(uuid)s."),
    "gpu_moved": gettext_lazy("GPU %(index)s moved from %(before)s to %(after)s."),
    "gpu_twice": gettext_lazy("%(uuid)s is reported twice."),
    "gpu_index_taken": gettext_lazy("GPU %(index)s (%(uuid)s) has the index of another."),
    "gpu_elsewhere": gettext_lazy("GPU %(index)s (%(uuid)s) is already known on %(node)s."),
    "model_unknown": gettext_lazy(
        "GPU %(index)s is a %(model)s, and no model of that name is in the catalogue."
    ),
    "models_known": gettext_lazy(
        "Its GPUs are in the catalogue now. Approve the node to plan work on it."
    ),
    "domain": gettext_lazy("NVLink domain %(number)s"),
    "no_domain": gettext_lazy("no NVLink domain"),
    # Actions of operators and of the portal.
    "mode_change": gettext_lazy(
        "Changes from %(before)s to %(after)s by a reset, while it is empty."
    ),
    "mode_pinned": gettext_lazy("%(operator)s pinned it to %(mode)s%(note)s."),
    "mode_unpinned": gettext_lazy("%(operator)s unpinned its mode%(note)s."),
    "gpu_returned": gettext_lazy(
        "%(operator)s returned it to service: %(note)s. It was out: %(reason)s."
    ),
    "fenced": gettext_lazy("%(operator)s states that it is off: %(note)s."),
    "approved": gettext_lazy("Approved by %(operator)s, %(at)s UTC"),
    "locked_out": gettext_lazy(
        "Its agent was locked out by %(operator)s, %(at)s UTC; enrol it again"
    ),
    "rate_exceeded": gettext_lazy(
        "Its agent exceeded its message rate and was locked out, %(at)s UTC; enrol it again"
    ),
    "drained": gettext_lazy("%(reason)s (%(operator)s, %(at)s UTC)"),
    "drained_by": gettext_lazy("%(reason)s (%(operator)s, %(at)s UTC; empty by %(by)s UTC)"),
    "maintenance_planned": gettext_lazy(
        "%(operator)s planned maintenance: %(reason)s%(repeated)s."
    ),
    "maintenance_ended": gettext_lazy("%(operator)s ended maintenance: %(reason)s."),
    "maintenance_series_ended": gettext_lazy(
        "%(operator)s ended maintenance: %(reason)s and %(dates)s later dates."
    ),
    "escalation_set": gettext_lazy("%(operator)s set: %(escalation)s"),
    "escalation_follows_policy": gettext_lazy(
        "%(operator)s set: follows the policy. %(escalation)s"
    ),
    "escalation_by_policy": gettext_lazy("The policy changed. %(escalation)s"),
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
