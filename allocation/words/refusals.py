"""The sentences of refusals that a request gets at once."""

from collections.abc import Callable, Mapping
from typing import Any

from allocation.words import asks, request_refusals, site_refusals
from allocation.words.amounts import Facts
from tenants.platform.coded import Coded
from tenants.platform.nouns import Plural, Sentence, plural, unit_text


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    text, known = _SENTENCES[code], Facts(facts)
    return unit_text(text(known) if callable(text) else str(text % known), known.of_class)


def sentences_add(sentences: Mapping[str, Sentence]) -> None:
    """Adds the sentences of a feature."""
    _SENTENCES.update(sentences)


def coded_text(text: Coded) -> str:
    """Returns the sentence of a text of pure code. KeyError as `refusal_text`."""
    return refusal_text(text.code, **text.facts)


def _no_more_time(facts: Facts) -> str:
    if not facts["limit"]:
        first = "The tier %(tier)s grants no more time."
    else:
        first = plural(
            "The tier %(tier)s grants more time %(limit)s time, and that is used.",
            "The tier %(tier)s grants more time %(limit)s times, and these are used.",
            int(facts["limit"]),
        )
    second = "Save now, or book in a tier that is never paused."
    return f"{first % facts} {second}"


def _no_approver(facts: Facts) -> str:
    who = "an admin" if facts["role"] == "admin" else "a lead of the project or an admin"
    text = (
        "This needs the approval of %(needed)s other than you: %(who)s. There are %(found)s. "
        "An organisation admin can appoint one."
    )
    return text % {**facts, "who": who}


def _rolling_hours(facts: Facts) -> str:
    if facts["days"]:
        text = (
            "%(name)s may have %(limit_hours)s of %(gpu_class)s in any %(span)s; "
            "this needs %(asked_grouped)s."
        )
    else:
        text = "%(name)s may have %(limit_hours)s of %(gpu_class)s; this needs %(asked_grouped)s."
    return text % facts


_SENTENCES: dict[str, Callable[[Facts], str] | Sentence] = {
    **site_refusals.SENTENCES,
    **request_refusals.SENTENCES,
    **asks.SENTENCES,
    # Admission
    "stopped_site": "Running bookings continue. Ask again when the stop is over.",
    "stopped_tenant": "Running bookings continue. Ask again when the stop is over.",
    "stopped_tier": "Running bookings continue. Choose another tier, or ask again later.",
    "stopped_class": "Running bookings continue. Leave the class out, or ask again later.",
    "policy_hook_denied": "The policy hook of %(tenant)s denied this: “%(words)s”",
    "policy_hook_failed": (
        "The policy hook of %(tenant)s gave no valid answer, and its rule is to admit nothing "
        "without one. Ask again in a moment, or ask an admin of the organisation."
    ),
    "unknown_tier": "There is no such tier. Choose one of: %(tiers)s.",
    "unknown_class": "The fleet has no GPU class %(gpu_class)s. It has: %(known)s.",
    "impossible_profile": "%(classes)s GPUs have no slice %(profile)s.",
    "window_past": "This window has already begun. Leave out the start to begin as soon as possible.",
    "too_long": "A booking in the tier %(tier)s may last %(longest)s at most.",
    "advance_window": (
        "Bookings in the tier %(tier)s start at most %(ahead)s from now; "
        "the latest start%(of)s is %(latest)s."
    ),
    "beyond_horizon": (
        "The policy plans no booking more than %(horizon)s ahead, whatever a tier allows. An "
        "operator can raise the planning horizon of the policy."
    ),
    # Tiers
    "tier_audience": "%(who)s may use the tier %(tier)s in this organisation. Book in: %(others)s.",
    "shorter_than_tier": "A booking in the tier %(tier)s lasts %(shortest)s at least.",
    "too_soon": (
        "Bookings in the tier %(tier)s are made at least %(lead)s before they start. The earliest "
        "start is %(earliest)s."
    ),
    (
        "tier_class"
    ): "The tier %(tier)s is not open for %(gpu_class)s in this organisation. It is for: %(classes)s.",
    "sooner_flexible": "%(label)s has no fixed window, so it already starts as early as possible.",
    "sooner_no_time": "There is no time between the earliest start that you name and the start of %(label)s.",
    "sooner_alone": "Send `sooner` without other parts of the request, except `not_before`.",
    "sooner_needs_approval": (
        "An earlier start would need an approval, by the rule %(rules)s, but nobody can approve a "
        "start that is not known yet. Request one window instead."
    ),
    (
        "start_hours"
    ): "Bookings in the tier %(tier)s start at %(hours)s (%(zone)s) only. Name a start in these hours.",
    "too_many_open": Plural(
        "A person may have %(limit)s open booking in the tier %(tier)s; you have %(found)s. "
        "Cancel one, or wait until one is over.",
        "A person may have %(limit)s open bookings in the tier %(tier)s; you have %(found)s. "
        "Cancel one, or wait until one is over.",
        "limit",
    ),
    "too_many_gpus": Plural(
        "A person's open bookings in the tier %(tier)s may have %(limit)s GPU together; with this "
        "one you would have %(asked)s.",
        "A person's open bookings in the tier %(tier)s may have %(limit)s GPUs together; with this "
        "one you would have %(asked)s.",
        "limit",
    ),
    "too_many_versions": "An organisation has at most %(most)s versions of tiers.",
    "version_exists": "Another version begins at the same time.",
    "version_in_force": "This version was in force already. Set another version instead.",
    "version_starts": "A version begins now, or within two years.",
    "bad_audience": "Choose who may use the tier: %(known)s.",
    "tier_number": "This number is too small or too large.",
    "outside_bounds": "This is outside of what the operator allows in the tier %(tier)s: %(bound)s.",
    "deadline_passed": "The deadline has passed.",
    "deadline_unreachable": (
        "It would end after its deadline even at the earliest start. Ask for less time, or for a "
        "later deadline."
    ),
    "class_not_open": "Your organisation has no quota for %(gpu_class)s. An operator can grant it.",
    "quota_limit": "%(name)s may use %(limit_gpus)s %(gpu_class)s at once; this needs %(asked_gpus)s.",
    (
        "person_quota"
    ): "A person may use %(limit_gpus)s %(gpu_class)s at once in %(where)s; this needs %(asked_gpus)s.",
    "gpu_hours": _rolling_hours,
    (
        "pin_elsewhere"
    ): "There are no %(classes)s GPUs on %(pins)s, only %(there)s. Ask for those, or leave out the pin.",
    "pin_too_small": (
        "%(pins)s has room for %(most)s of them; this needs %(asked)s. Ask for fewer, name more "
        "nodes or GPUs, or leave out the pin."
    ),
    "no_such_zone": "There is no zone %(zone)s.",
    (
        "where_elsewhere"
    ): "There are no %(classes)s GPUs %(where)s. Ask for other nodes, or leave out where it runs.",
    "where_too_small": (
        "At most %(most)s of them fit %(where)s; this needs %(asked)s. Ask for fewer, or leave out where "
        "it runs."
    ),
    "pin_unknown": "There is no node or GPU called %(name)s. Name a node, or a GPU as node/2.",
    "quote_expired": "Prices are fixed for five minutes after they are shown. Ask for a new quote.",
    # The waiting list
    "wait_needs_window": (
        "Only a fixed window can be on the waiting list. Name a start and an end, or leave out the "
        "start: a booking without a start waits in the queue."
    ),
    (
        "not_waitable"
    ): "The booking or its start has changed since, so this change can't wait. Request it again.",
    "wait_too_late": "The window is too near or too short to wait for it.",
    "too_many_entries": (
        "A person can wait for %(most)s windows at once; with this you would wait for more. Cancel "
        "one that waits, or ask for fewer."
    ),
    # Approvals
    (
        "too_many_approvals"
    ): "%(most)s of your requests wait for an approval already. Wait for a decision, or cancel one.",
    "no_approver": _no_approver,
    "too_many_approvals_here": (
        "%(most)s requests of your organisation wait for an approval already. Its leads and admins "
        "decide them first; until then only bookings that need no approval are accepted."
    ),
    (
        "approval_too_late"
    ): "It needs an approval and would have to start before anybody can decide. Choose a later start.",
    "approval_needed": "This needs an approval, by the rule %(rules)s. %(label)s stays as it is.",
    "approval_own": "You requested this booking, so another person decides.",
    "approval_admins_only": "An admin of your organisation decides this step.",
    "approval_leads_only": "Only leads of the project decide this.",
    (
        "counter_single"
    ): "Counter-offers are not for changes of several dates at once. Decline this with a reason instead.",
    "counter_same": "This is what was asked for already. Approve it, or offer something else.",
    "counter_over": "This counter-offer is not open any more. Reload the page to see the request as it is.",
    (
        "counter_changed"
    ): "Prices or limits have changed since this was offered. Ask the approver for a new offer.",
    "counter_approver_left": "The person who offered this does not decide the request any more.",
    "counter_asker_only": "Only the person who asked can answer a counter-offer.",
    "alternative_gone": "By now this would need an approval, too. Your request still waits unchanged.",
    "alternative_asker_only": "Only the person who asked can book something else instead.",
    "approval_twice": "You decided an earlier step, so another person decides this.",
    "approval_expired": "The time to decide is over. The person can book again, which asks again.",
    "approval_changed": "The booking is not what you were shown. Read it again, then decide.",
    "owner_left": (
        "%(owner)s can't book in %(project)s any more, so the booking can't get more. It can be "
        "ended or made smaller."
    ),
    "asker_left": "The person can't book in this project any more, so this can't be approved.",
    "approval_was_approved": "%(actor)s has approved this already.",
    "approval_was_declined": "%(actor)s has declined this already.",
    "approval_was_expired": "Nobody decided in time, so the request has expired.",
    "approval_was_withdrawn": "The booking was cancelled, so there is nothing to do.",
    # Changes of a booking
    "booking_over": "%(label)s is %(state)s and can't be changed.",
    (
        "not_started"
    ): "%(label)s has not started, so there is nothing to release. Cancel it instead, at no cost.",
    "not_active": "%(label)s is not running.",
    "not_idle": "The GPUs of %(label)s are not about to be taken as idle.",
    "needed_twice": (
        "The GPUs of %(label)s stayed idle after people said %(most)s times that they need them. "
        "Use the GPUs to keep them; otherwise other bookings can get them."
    ),
    "no_place_yet": "%(label)s has no GPUs yet.",
    "extension_while_paused": (
        "%(label)s is %(state)s for a higher-priority booking and resumes with the time it has "
        "left. While it is paused, only the rest can be made shorter. Ask for more time, or "
        "another change, when it runs again."
    ),
    "not_extendable": "%(label)s is %(state)s. Only a booking that is scheduled or runs can be extended.",
    "end_not_later": "%(label)s ends %(ends)s already. Choose a later time.",
    (
        "extension_too_long"
    ): "A booking in the tier %(tier)s may last %(longest)s, so this one may end by %(latest)s.",
    "budget_exceeded": "The extension costs %(needs)s, and %(left)s is left in the budget.",
    "not_changeable": "%(label)s is %(state)s. Only a booking that waits for its start can be changed.",
    "revision_moved": "%(label)s was changed in the meantime. Reload it, then change it.",
    (
        "revision_needed"
    ): "Send the header If-Match with the ETag of the booking, so that no other change is lost.",
    "change_awaited": "Other bookings are paused for %(label)s, so it can only ask for less or be cancelled.",
    "running_fixed": (
        "%(label)s has begun, so only its end and its name can be changed, and GPUs can be given "
        "back by their names."
    ),
    "tier_begun": (
        "%(label)s has begun, so its tier stays %(tier)s: the quota of %(new)s is planned for "
        "other bookings. Book the rest of its time, %(rest)s, in %(new)s and release %(label)s "
        "when that starts."
    ),
    "redo_left": "The pause cost %(redo)s of work that is repeated without a charge, so it can't be shorter.",
    (
        "rest_too_short"
    ): "%(label)s is paused and can't end before %(earliest)s. Release it to give up its rest.",
    "give_back_early": "%(label)s is %(state)s. Only a booking that runs can give GPUs back.",
    "not_its_gpu": "%(label)s does not have the GPU %(gpu)s. It has: %(its)s.",
    "none_unused": "A process was seen on each GPU in the last two minutes. Name the GPUs to give back.",
    (
        "give_back_mixed"
    ): "A booking with several groups keeps all of its GPUs until it ends. Release it instead.",
    "give_back_all": "These are all GPUs of %(label)s. Release it instead.",
    "give_back_alone": "Give GPUs back on their own, then change the rest.",
    "end_past": "That end has passed. Release %(label)s to end it now.",
    "cost_above": "It would cost %(costs)s, and you accept at most %(limit)s.",
    "nothing_to_undo": "%(label)s has no change that could be undone.",
    "undo_late": (
        "A change can be undone for a minute, and this one was made at %(made)s. Change "
        "%(label)s back instead."
    ),
    "undo_begun": "%(label)s has begun with this change, so it can't be undone.",
    "undo_past": "The old start has passed, so the change can't be undone.",
    "change_gone": "These GPUs are no longer free as shown, so %(label)s keeps its planned start.",
    # Pauses
    "not_pausing": "%(label)s has no pending pause, so there is nothing to postpone.",
    "more_time_pending": "More time was asked for already. The answer comes in a few seconds.",
    "no_more_time": _no_more_time,
    "claim_can_not_wait": (
        "The higher-priority booking has a fixed time and can't start later, so the deadline "
        "stays. Save now, so that nothing is lost."
    ),
    "budget_can_not_wait": (
        "A limit of a budget pauses this booking, so the deadline stays. Save now, so that "
        "nothing is lost. It continues when the share of the budget is lower."
    ),
    "limit_can_not_wait": (
        "A limit was lowered below what is in use, so the deadline stays. Save now, so that nothing is lost. "
        "It continues as soon as the limit allows it."
    ),
    (
        "machine_can_not_wait"
    ): "Its provider takes the machine back then, so the deadline stays. Save now, so that nothing is lost.",
    (
        "operators_can_not_wait"
    ): "An operator pauses this booking, so the deadline stays. Save now, so that nothing is lost.",
    # Series
    "series_needs_start": "A series repeats a fixed time. Give a start and an end, like 9-17.",
    "series_overlap": "Two dates overlap. Make each date shorter.",
    "series_failed": "%(failed)s of %(of)s dates can't be booked. %(first)s: %(why)s",
    "series_moved": "A date of the series was changed meanwhile. Look at it again, then change it.",
    "date_elsewhere": "%(label)s is no date of this series.",
    "date_needed": "Name the date from which the series changes.",
    "date_begun": "%(label)s has begun. Name a date that is still to come.",
    "no_dates_left": "The series has no date to come that this changes.",
    "series_date_failed": "No date is changed, because of %(first)s: %(why)s",
    "series_other_day": "The dates of a series keep their days. Choose a start on the same day.",
    # Dependencies
    "too_many_parents": "A booking depends on at most %(most)s others.",
    "depends_fixed": "A booking that depends on others starts after them. Leave out the start.",
    "depends_twice": "%(label)s is named twice.",
    "parent_failed": "%(label)s is over and did not end as this needs.",
    "depends_cycle": "This item and others of the batch wait for each other.",
    "name_twice": "Another item of the batch has this key already.",
    "no_such_item": "No item of the batch has the key of %(name)s.",
    "parent_refused": "The item %(name)s was refused, so this can't wait for it.",
    "depends_change": "%(label)s waits for other bookings, so it can't be changed. Cancel it and book again.",
    # Arrays
    "bad_array": "An array has 1 to %(most)s elements.",
    "bad_parallel": "1 to %(most)s elements of an array can be open at a time.",
    (
        "array_fixed"
    ): "The elements of an array start one after the other. Leave out the start, or give a deadline.",
    "array_not_booking": "%(label)s is an array. Name one of its elements, such as %(label)s[1].",
    "array_not_yours": "Only its owner and the project's leads may cancel it.",
    # Results of programs
    "no_run": "%(label)s has no run whose result could be reported.",
    "result_late": "The result of %(label)s can't be reported any more.",
    # Orders of operators
    "order_stale": "The proposal is out of date, so nothing was done. Choose one of the new proposals.",
    # Overrides
    "override_used": "Another booking has used the exception that was for one booking. Ask for another one.",
    # Access
    "series_not_yours": "Only its owner and the project's leads may change this series.",
    (
        "booking_bookers_only"
    ): "Only researchers and leads of this project ask for more. You can end your booking or shorten it.",
    "booking_not_yours": "Only its owner and the project's leads may change this booking.",
}
