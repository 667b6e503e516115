"""The sentences of refusals that a request gets at once."""

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from allocation.words import asks, request_refusals, site_refusals
from allocation.words.amounts import Facts
from tenants.platform.coded import Coded


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    text = _SENTENCES[code]
    return text(Facts(facts)) if callable(text) else str(text % Facts(facts))


def sentences_add(sentences: Mapping[str, Promise]) -> None:
    """Adds the sentences of a feature."""
    _SENTENCES.update(sentences)


def coded_text(text: Coded) -> str:
    """Returns the sentence of a text of pure code. KeyError as `refusal_text`."""
    return refusal_text(text.code, **text.facts)


def _no_more_time(facts: Facts) -> str:
    if not facts["limit"]:
        first = _("The tier %(tier)s grants no more time.")
    else:
        first = ngettext(
            "The tier %(tier)s grants more time %(limit)s time, and that is used.",
            "The tier %(tier)s grants more time %(limit)s times, and these are used.",
            int(facts["limit"]),
        )
    second = _("Save now, or book in a tier that is never paused.")
    return f"{first % facts} {second}"


def _no_approver(facts: Facts) -> str:
    who = _("an admin") if facts["role"] == "admin" else _("a lead of the project or an admin")
    text = _(
        "This needs the approval of %(needed)s other than you: %(who)s. There are %(found)s. "
        "A tenant admin can appoint one."
    )
    return text % {**facts, "who": who}


def _override_decider(facts: Facts) -> str:
    who = {
        "operator": _("an operator"),
        "tenant_admin": _("an admin of the organisation"),
        "lead": _("a lead of the project or an admin"),
    }
    return _("This limit is set by %(who)s, who decides.") % {"who": who[str(facts["decider"])]}


def _rolling_hours(facts: Facts) -> str:
    if facts["days"]:
        text = _(
            "%(name)s may have %(limit_hours)s of %(gpu_class)s in any %(span)s; "
            "this needs %(asked_grouped)s."
        )
    else:
        text = _("%(name)s may have %(limit_hours)s of %(gpu_class)s; this needs %(asked_grouped)s.")
    return text % facts


_SENTENCES: dict[str, Callable[[Facts], str] | Promise] = {
    **site_refusals.SENTENCES,
    **request_refusals.SENTENCES,
    **asks.SENTENCES,
    # Admission
    "stopped_site": gettext_lazy("Running bookings continue. Ask again when the stop is over."),
    "stopped_tenant": gettext_lazy("Running bookings continue. Ask again when the stop is over."),
    "stopped_tier": gettext_lazy("Running bookings continue. Choose another tier, or ask again later."),
    "stopped_class": gettext_lazy("Running bookings continue. Leave the class out, or ask again later."),
    "policy_hook_denied": gettext_lazy("The policy hook of %(tenant)s denied this: “%(words)s”"),
    "policy_hook_failed": gettext_lazy(
        "The policy hook of %(tenant)s gave no valid answer, and its rule is to admit nothing "
        "without one. Ask again in a moment, or ask an admin of the organisation."
    ),
    "unknown_tier": gettext_lazy("There is no such tier. Choose one of: %(tiers)s."),
    "unknown_class": gettext_lazy("The fleet has no GPU class %(gpu_class)s. It has: %(known)s."),
    "impossible_profile": gettext_lazy("%(classes)s GPUs have no slice %(profile)s."),
    "window_past": gettext_lazy(
        "This window has already begun. Leave out the start to begin as soon as possible."
    ),
    "too_long": gettext_lazy("A booking in the tier %(tier)s may last %(longest)s at most."),
    "advance_window": gettext_lazy(
        "Bookings in the tier %(tier)s start at most %(ahead)s from now; the latest start is %(latest)s."
    ),
    "beyond_horizon": gettext_lazy(
        "The policy plans no booking more than %(horizon)s ahead, whatever a tier allows. An "
        "operator can raise the planning horizon of the policy."
    ),
    # Requirements
    "terms_missing": gettext_lazy(
        "The %(target)s asks you to accept “%(name)s”, version %(version)s. Read and accept it, "
        "then book again."
    ),
    "training_missing": gettext_lazy(
        "The %(target)s asks for the training “%(name)s”. An admin records its date under Terms and training."
    ),
    "training_over": gettext_lazy(
        "The %(target)s asks for the training “%(name)s”; yours was valid until %(until)s. An "
        "admin records a new date under Terms and training."
    ),
    # Tiers
    "tier_audience": gettext_lazy(
        "%(who)s may use the tier %(tier)s in this organisation. Book in: %(others)s."
    ),
    "shorter_than_tier": gettext_lazy("A booking in the tier %(tier)s lasts %(shortest)s at least."),
    "too_soon": gettext_lazy(
        "Bookings in the tier %(tier)s are made at least %(lead)s before they start. The earliest "
        "start is %(earliest)s."
    ),
    "tier_class": gettext_lazy(
        "The tier %(tier)s is not open for %(gpu_class)s in this organisation. It is for: %(classes)s."
    ),
    "sooner_flexible": gettext_lazy(
        "%(label)s has no fixed window, so it already starts as early as possible."
    ),
    "sooner_no_time": gettext_lazy(
        "There is no time between the earliest start that you name and the start of %(label)s."
    ),
    "sooner_alone": gettext_lazy("Send `sooner` without other parts of the request, except `not_before`."),
    "sooner_needs_approval": gettext_lazy(
        "An earlier start would need an approval, by the rule %(rules)s, but nobody can approve a "
        "start that is not known yet. Request one window instead."
    ),
    "start_hours": gettext_lazy(
        "Bookings in the tier %(tier)s start at %(hours)s (%(zone)s) only. Name a start in these hours."
    ),
    "too_many_open": ngettext_lazy(
        "A person may have %(limit)s open booking in the tier %(tier)s; you have %(found)s. "
        "Cancel one, or wait until one is over.",
        "A person may have %(limit)s open bookings in the tier %(tier)s; you have %(found)s. "
        "Cancel one, or wait until one is over.",
        "limit",
    ),
    "too_many_gpus": ngettext_lazy(
        "A person's open bookings in the tier %(tier)s may have %(limit)s GPU together; with this "
        "one you would have %(asked)s.",
        "A person's open bookings in the tier %(tier)s may have %(limit)s GPUs together; with this "
        "one you would have %(asked)s.",
        "limit",
    ),
    "too_many_versions": gettext_lazy("An organisation has at most %(most)s versions of tiers."),
    "version_exists": gettext_lazy("Another version begins at the same time."),
    "version_in_force": gettext_lazy("This version was in force already. Set another version instead."),
    "version_starts": gettext_lazy("A version begins now, or within two years."),
    "bad_audience": gettext_lazy("Choose who may use the tier: %(known)s."),
    "tier_number": gettext_lazy("This number is too small or too large."),
    "outside_bounds": gettext_lazy(
        "This is outside of what the operator allows in the tier %(tier)s: %(bound)s."
    ),
    "deadline_passed": gettext_lazy("The deadline has passed."),
    "deadline_unreachable": gettext_lazy(
        "It would end after its deadline even at the earliest start. Ask for less time, or for a "
        "later deadline."
    ),
    "class_not_open": gettext_lazy(
        "Your organisation has no quota for %(gpu_class)s. An operator can grant it."
    ),
    "quota_limit": gettext_lazy(
        "%(name)s may use %(limit_gpus)s %(gpu_class)s at once; this needs %(asked_gpus)s."
    ),
    "person_quota": gettext_lazy(
        "A person may use %(limit_gpus)s %(gpu_class)s at once in %(where)s; this needs %(asked_gpus)s."
    ),
    "gpu_hours": _rolling_hours,
    "pin_elsewhere": gettext_lazy(
        "There are no %(classes)s GPUs on %(pins)s, only %(there)s. Ask for those, or leave out the pin."
    ),
    "pin_too_small": gettext_lazy(
        "%(pins)s has room for %(most)s of them; this needs %(asked)s. Ask for fewer, name more "
        "nodes or GPUs, or leave out the pin."
    ),
    "no_such_zone": gettext_lazy("There is no zone %(zone)s."),
    "where_elsewhere": gettext_lazy(
        "There are no %(classes)s GPUs %(where)s. Ask for other nodes, or leave out where it runs."
    ),
    "where_too_small": gettext_lazy(
        "At most %(most)s of them fit %(where)s; this needs %(asked)s. Ask for fewer, or leave out where "
        "it runs."
    ),
    "pin_unknown": gettext_lazy("There is no node or GPU called %(name)s. Name a node, or a GPU as node/2."),
    "quote_expired": gettext_lazy(
        "Prices are fixed for five minutes after they are shown. Ask for a new quote."
    ),
    # The waiting list
    "wait_needs_window": gettext_lazy(
        "Only a fixed window can be on the waiting list. Name a start and an end, or leave out the "
        "start: a booking without a start waits in the queue."
    ),
    "not_waitable": gettext_lazy(
        "The booking or its start has changed since, so this change can't wait. Request it again."
    ),
    "wait_too_late": gettext_lazy("The window is too near or too short to wait for it."),
    "too_many_entries": gettext_lazy(
        "A person can wait for %(most)s windows at once; with this you would wait for more. Cancel "
        "one that waits, or ask for fewer."
    ),
    # Approvals
    "too_many_approvals": gettext_lazy(
        "%(most)s of your requests wait for an approval already. Wait for a decision, or cancel one."
    ),
    "no_approver": _no_approver,
    "too_many_approvals_here": gettext_lazy(
        "%(most)s requests of your organisation wait for an approval already. Its leads and admins "
        "decide them first; until then only bookings that need no approval are accepted."
    ),
    "approval_too_late": gettext_lazy(
        "It needs an approval and would have to start before anybody can decide. Choose a later start."
    ),
    "approval_needed": gettext_lazy(
        "This needs an approval, by the rule %(rules)s. %(label)s stays as it is."
    ),
    "approval_own": gettext_lazy("You requested this booking, so another person decides."),
    "approval_admins_only": gettext_lazy("An admin of your organisation decides this step."),
    "approval_leads_only": gettext_lazy("Only leads of the project decide this."),
    "counter_single": gettext_lazy(
        "Counter-offers are not for changes of several dates at once. Decline this with a reason instead."
    ),
    "counter_same": gettext_lazy("This is what was asked for already. Approve it, or offer something else."),
    "counter_over": gettext_lazy(
        "This counter-offer is not open any more. Reload the page to see the request as it is."
    ),
    "counter_changed": gettext_lazy(
        "Prices or limits have changed since this was offered. Ask the approver for a new offer."
    ),
    "counter_approver_left": gettext_lazy(
        "The person who offered this does not decide the request any more."
    ),
    "counter_asker_only": gettext_lazy("Only the person who asked can answer a counter-offer."),
    "alternative_gone": gettext_lazy(
        "By now this would need an approval, too. Your request still waits unchanged."
    ),
    "alternative_asker_only": gettext_lazy("Only the person who asked can book something else instead."),
    "approval_twice": gettext_lazy("You decided an earlier step, so another person decides this."),
    "approval_expired": gettext_lazy(
        "The time to decide is over. The person can book again, which asks again."
    ),
    "approval_changed": gettext_lazy("The booking is not what you were shown. Read it again, then decide."),
    "owner_left": gettext_lazy(
        "%(owner)s can't book in %(project)s any more, so the booking can't get more. It can be "
        "ended or made smaller."
    ),
    "override_left": gettext_lazy(
        "%(who)s can't book in %(place)s any more, so nothing can be granted. Decline the request."
    ),
    "asker_left": gettext_lazy("The person can't book in this project any more, so this can't be approved."),
    "approval_was_approved": gettext_lazy("%(actor)s has approved this already."),
    "approval_was_declined": gettext_lazy("%(actor)s has declined this already."),
    "approval_was_expired": gettext_lazy("Nobody decided in time, so the request has expired."),
    "approval_was_withdrawn": gettext_lazy("The booking was cancelled, so there is nothing to do."),
    # Changes of a booking
    "booking_over": gettext_lazy("%(label)s is %(state)s and can't be changed."),
    "not_started": gettext_lazy(
        "%(label)s has not started, so there is nothing to release. Cancel it instead, at no cost."
    ),
    "not_active": gettext_lazy("%(label)s is not running."),
    "not_idle": gettext_lazy("The GPUs of %(label)s are not about to be taken as idle."),
    "needed_twice": gettext_lazy(
        "The GPUs of %(label)s stayed idle after people said %(most)s times that they need them. "
        "Use the GPUs to keep them; otherwise other bookings can get them."
    ),
    "no_place_yet": gettext_lazy("%(label)s has no GPUs yet."),
    "extension_while_paused": gettext_lazy(
        "%(label)s is %(state)s for a higher-priority booking and resumes with the time it has "
        "left. While it is paused, only the rest can be made shorter. Ask for more time, or "
        "another change, when it runs again."
    ),
    "not_extendable": gettext_lazy(
        "%(label)s is %(state)s. Only a booking that is scheduled or runs can be extended."
    ),
    "end_not_later": gettext_lazy("%(label)s ends %(ends)s already. Choose a later time."),
    "extension_too_long": gettext_lazy(
        "A booking in the tier %(tier)s may last %(longest)s, so this one may end by %(latest)s."
    ),
    "budget_exceeded": gettext_lazy("The extension costs %(needs)s, and %(left)s is left in the budget."),
    "not_changeable": gettext_lazy(
        "%(label)s is %(state)s. Only a booking that waits for its start can be changed."
    ),
    "revision_moved": gettext_lazy("%(label)s was changed in the meantime. Reload it, then change it."),
    "revision_needed": gettext_lazy(
        "Send the header If-Match with the ETag of the booking, so that no other change is lost."
    ),
    "change_awaited": gettext_lazy(
        "Other bookings are paused for %(label)s, so it can only ask for less or be cancelled."
    ),
    "running_fixed": gettext_lazy(
        "%(label)s has begun, so only its end and its name can be changed, and GPUs can be given "
        "back by their names."
    ),
    "tier_begun": gettext_lazy(
        "%(label)s has begun, so its tier stays %(tier)s: the quota of %(new)s is planned for "
        "other bookings. Book the rest of its time, %(rest)s, in %(new)s and release %(label)s "
        "when that starts."
    ),
    "redo_left": gettext_lazy(
        "The pause cost %(redo)s of work that is repeated without a charge, so it can't be shorter."
    ),
    "rest_too_short": gettext_lazy(
        "%(label)s is paused and can't end before %(earliest)s. Release it to give up its rest."
    ),
    "give_back_early": gettext_lazy("%(label)s is %(state)s. Only a booking that runs can give GPUs back."),
    "not_its_gpu": gettext_lazy("%(label)s does not have the GPU %(gpu)s. It has: %(its)s."),
    "none_unused": gettext_lazy(
        "A process was seen on each GPU in the last two minutes. Name the GPUs to give back."
    ),
    "give_back_mixed": gettext_lazy(
        "A booking with several groups keeps all of its GPUs until it ends. Release it instead."
    ),
    "give_back_all": gettext_lazy("These are all GPUs of %(label)s. Release it instead."),
    "give_back_alone": gettext_lazy("Give GPUs back on their own, then change the rest."),
    "end_past": gettext_lazy("That end has passed. Release %(label)s to end it now."),
    "cost_above": gettext_lazy("It would cost %(costs)s, and you accept at most %(limit)s."),
    "nothing_to_undo": gettext_lazy("%(label)s has no change that could be undone."),
    "undo_late": gettext_lazy(
        "A change can be undone for a minute, and this one was made at %(made)s. Change "
        "%(label)s back instead."
    ),
    "undo_begun": gettext_lazy("%(label)s has begun with this change, so it can't be undone."),
    "undo_past": gettext_lazy("The old start has passed, so the change can't be undone."),
    "change_gone": gettext_lazy(
        "These GPUs are no longer free as shown, so %(label)s keeps its planned start."
    ),
    # Pauses
    "not_pausing": gettext_lazy("%(label)s has no pending pause, so there is nothing to postpone."),
    "more_time_pending": gettext_lazy("More time was asked for already. The answer comes in a few seconds."),
    "no_more_time": _no_more_time,
    "claim_can_not_wait": gettext_lazy(
        "The higher-priority booking has a fixed time and can't start later, so the deadline "
        "stays. Save now, so that nothing is lost."
    ),
    "budget_can_not_wait": gettext_lazy(
        "A limit of a budget pauses this booking, so the deadline stays. Save now, so that "
        "nothing is lost. It continues when the share of the budget is lower."
    ),
    "limit_can_not_wait": gettext_lazy(
        "A limit was lowered below what is in use, so the deadline stays. Save now, so that nothing is lost. "
        "It continues as soon as the limit allows it."
    ),
    "machine_can_not_wait": gettext_lazy(
        "Its provider takes the machine back then, so the deadline stays. Save now, so that nothing is lost."
    ),
    "operators_can_not_wait": gettext_lazy(
        "An operator pauses this booking, so the deadline stays. Save now, so that nothing is lost."
    ),
    # Series
    "series_needs_start": gettext_lazy("A series repeats a fixed time. Give a start and an end, like 9-17."),
    "series_overlap": gettext_lazy("Two dates overlap. Make each date shorter."),
    "series_failed": gettext_lazy("%(failed)s of %(of)s dates can't be booked. %(first)s: %(why)s"),
    "series_moved": gettext_lazy(
        "A date of the series was changed meanwhile. Look at it again, then change it."
    ),
    "date_elsewhere": gettext_lazy("%(label)s is no date of this series."),
    "date_needed": gettext_lazy("Name the date from which the series changes."),
    "date_begun": gettext_lazy("%(label)s has begun. Name a date that is still to come."),
    "no_dates_left": gettext_lazy("The series has no date to come that this changes."),
    "series_date_failed": gettext_lazy("No date is changed, because of %(first)s: %(why)s"),
    "series_other_day": gettext_lazy(
        "The dates of a series keep their days. Choose a start on the same day."
    ),
    # Dependencies
    "too_many_parents": gettext_lazy("A booking depends on at most %(most)s others."),
    "depends_fixed": gettext_lazy("A booking that depends on others starts after them. Leave out the start."),
    "depends_twice": gettext_lazy("%(label)s is named twice."),
    "parent_failed": gettext_lazy("%(label)s is over and did not end as this needs."),
    "depends_cycle": gettext_lazy("This item and others of the batch wait for each other."),
    "name_twice": gettext_lazy("Another item of the batch has this key already."),
    "no_such_item": gettext_lazy("No item of the batch has the key of %(name)s."),
    "parent_refused": gettext_lazy("The item %(name)s was refused, so this can't wait for it."),
    "depends_change": gettext_lazy(
        "%(label)s waits for other bookings, so it can't be changed. Cancel it and book again."
    ),
    # Arrays
    "bad_array": gettext_lazy("An array has 1 to %(most)s elements."),
    "bad_parallel": gettext_lazy("1 to %(most)s elements of an array can be open at a time."),
    "array_fixed": gettext_lazy(
        "The elements of an array start one after the other. Leave out the start, or give a deadline."
    ),
    "array_not_booking": gettext_lazy(
        "%(label)s is an array. Name one of its elements, such as %(label)s[1]."
    ),
    "array_not_yours": gettext_lazy("Only its owner and the project's leads may cancel it."),
    # Results of programs
    "no_run": gettext_lazy("%(label)s has no run whose result could be reported."),
    "result_late": gettext_lazy("The result of %(label)s can't be reported any more."),
    # Orders of operators
    "order_stale": gettext_lazy(
        "The proposal is out of date, so nothing was done. Choose one of the new proposals."
    ),
    # Overrides
    "override_kind": gettext_lazy("There is no such limit. Choose one of: %(known)s."),
    "override_amount": gettext_lazy("Enter how much more is needed: a number above zero."),
    "override_until": gettext_lazy("Choose an end in the future, within two years."),
    "decline_reason": gettext_lazy("Give a reason of at most %(most)s characters."),
    "override_reason": gettext_lazy("A reason has at most %(most)s characters."),
    "override_never_once": gettext_lazy("More of this can be had until a date, not for one booking."),
    "override_asked": gettext_lazy("You have asked for this already. It waits for its decision."),
    "too_many_overrides": gettext_lazy(
        "You have %(most)s requests that wait for a decision. Withdraw one first."
    ),
    "override_own": gettext_lazy("You asked for this, so another person decides."),
    "override_of_another": gettext_lazy("Only the person who asked can withdraw a request."),
    "override_over": gettext_lazy("This is %(state)s already."),
    "override_decider": _override_decider,
    "override_used": gettext_lazy(
        "Another booking has used the exception that was for one booking. Ask for another one."
    ),
    # Access
    "series_not_yours": gettext_lazy("Only its owner and the project's leads may change this series."),
    "booking_bookers_only": gettext_lazy(
        "Only researchers and leads of this project ask for more. You can end your booking or shorten it."
    ),
    "booking_not_yours": gettext_lazy("Only its owner and the project's leads may change this booking."),
}
