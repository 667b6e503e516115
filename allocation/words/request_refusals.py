"""The sentences of refusals that REST, pages and files of requests raise."""

from collections.abc import Callable

from allocation.words.amounts import Facts
from tenants.platform.nouns import Plural, Sentence


def _guarantee_only(facts: Facts) -> str:
    if "borrow_seconds" in facts:
        text = (
            "The tier %(tier)s is never paused, so it can borrow GPUs for at most "
            "%(borrow_length)s: %(name)s is guaranteed %(limit_gpus)s %(gpu_class)s; this needs "
            "%(asked_gpus)s."
        )
    else:
        text = (
            "The tier %(tier)s is never paused, so it can't borrow GPUs: %(name)s is guaranteed "
            "%(limit_gpus)s %(gpu_class)s; this needs %(asked_gpus)s."
        )
    if "part" not in facts:
        return text % facts
    more = "%(part_gpus)s more are guaranteed to other tiers only: %(tiers)s."
    return f"{text} {more}" % facts


def _host_too_small(facts: Facts) -> str:
    units = {"cores": "%(cores)s host cores", "memory": "%(memory)s GiB of host memory"}
    needs = [text for name, text in units.items() if facts[name]]
    if facts["most"]:
        text = "The nodes with %(gpu_class)s have %(host)s for at most %(most)s of the %(asked)s devices."
    else:
        text = "No node with %(gpu_class)s has %(host)s for one device."
    return text % {**facts, "host": " and ".join(needs) % facts}


SENTENCES: dict[str, Sentence | Callable[[Facts], str]] = {
    "guarantee_only": _guarantee_only,
    "host_too_small": _host_too_small,
    (
        "cores_or_gpus"
    ): "A booking has GPUs or host cores, not both: cores for GPUs come with the GPUs. Book the cores apart.",
    "host_cores_only": "Work without a GPU has a number of cores and their memory, and no %(field)s.",
    "only_arrays": "Only an array can have this field. Send `array`, too.",
    "batch_refused": Plural(
        "%(refused)s of %(of)s items was refused, so none was booked. Item %(first)s: %(sentence)s",
        "%(refused)s of %(of)s items were refused, so none was booked. Item %(first)s: %(sentence)s",
        "refused",
    ),
    "until_or_by": "Send either `until` or `by`.",
    "form_key_reused": (
        "This form was sent before with other values, and has booked those. Send it once more to book these, "
        "too."
    ),
    "name_too_long": "A name has at most %(longest)s characters.",
    "booking_too_long": "A booking can't be that long.",
    "change_ways": "Send either `request`, or `ask`, or single fields of the request.",
    "duration_or_ends": "Send either `duration` or `ends`.",
    "no_end_yet": "The booking has no end yet. Send `duration` or `deadline`.",
    "not_placed": "%(label)s could not be placed.",
    "keeps_places": "%(label)s keeps what it has.",
    "request_or_ask": "Send either `request` or `ask`.",
    "bad_zone": "Choose an IANA time zone, such as Europe/Berlin.",
    "array_twice": "`request` has another number, %(value)s. Send only one of them.",
    "recurrence_once": "Send the recurrence either in `request` or in `repeat`.",
    "tier_twice": "`request` names another tier, %(named)s. Send only one of them.",
    "project_twice": "`request` names another project, %(named)s. Send only one of them.",
    "until_after_from": "`until` must be after `from`.",
    "span_too_long": "The period can be at most %(days)s days long.",
    "series_conflict": Plural(
        "%(failed)s of %(dates)s dates is not available, so no date was booked: this series "
        "is booked as a whole or not at all. It is: %(sentence)s",
        "%(failed)s of %(dates)s dates are not available, so no date was booked: this series "
        "is booked as a whole or not at all. The first of them: %(sentence)s",
        "failed",
    ),
    "windows_count": "Send 1 to 50 windows, each of which ends after it begins.",
    "tenant_needed": "Name the organisation whose past bookings you want.",
    "booking_ids": "Send the bookings' ids, such as `bk_…`.",
    "unbooked_times_twice": "`policy` already sets these times. Leave out either this field or the others.",
    "too_many_rungs": "A budget has at most %(most_rungs)s alerts and limits.",
    "unknown_profile": "%(gpu_class)s has no slice %(profile)s. Its slices: %(names)s.",
    "bad_clock": "Enter a time of day such as 08:00.",
    "project_or_lab": "Send either `project` or `lab`.",
    "spend_period": "Choose 1 to 366 days. `ends` is the first day after the period.",
    "bad_month": "Enter a month such as 2026-11.",
    "group_by": "Group by %(groups)s, or by the key of a label, such as label:team.",
    "no_such_name": "There is no %(name)s.",
    "not_understood": "Not understood: %(words)s. %(sentence)s",
    "words_not_understood": "Not understood: %(words)s.",
    "no_mode": "There is no %(mode)s to end.",
    "bad_policy": "This policy is not valid. %(error)s",
    "day_example": "Enter a day such as 2026-12-31.",
    "extension_choice": "Choose an extension from the list.",
    "option_choice": "Choose one of the options shown.",
    "array_number": "Enter a number from 1 to %(most)s.",
    "no_option": "Choose an option first.",
    "no_key": "Reload the page, then book again.",
    "too_many_quotes_page": Plural(
        "You asked for too many quotes: at most %(most)s in %(in_seconds)s seconds are "
        "possible. Try again in %(wait)s second.",
        "You asked for too many quotes: at most %(most)s in %(in_seconds)s seconds are "
        "possible. Try again in %(wait)s seconds.",
        "wait",
    ),
    "class_choice": "Choose a GPU class.",
    "group_form": "Write each group as a number and a GPU class, such as 4 l40s + 2 a100.",
    "class_of_group": "Choose one GPU class for each group.",
    "duration_example": "Enter a duration, such as 6h or 1h30m.",
    "repetition_end": "Enter the last day of the repetition.",
    "time_example": "Enter a date and a time.",
    "form_stale": "The booking has changed since you opened this form. Open it again.",
    "deadline_form": "Enter the deadline as a date and time.",
    "unbooked_minutes": "Enter whole minutes up to a week, or leave the field empty.",
    "bad_date": "Enter a date such as 2027-01-31.",
    "percent_200": "Enter a share from 1 to 200 percent.",
    "one_of_values": "Choose one of the values.",
    "first_and_last_day": "Choose a first and a last day.",
    "bad_warning": "Enter a warning level from 1 to 100 percent.",
    "percent_1000": "Enter a percentage from 1 to 1000, or leave the field empty.",
    "class_slug_taken": "Another class already has this short name.",
    "policy_bounds": "Enter a value from %(low)s to %(high)s.",
    "outage_length_form": "Enter a duration, such as 20m.",
    "price_missing": "Add GPU classes and tiers first.",
    "speed_form": "Enter a speed such as 1 or 0.45.",
    "bookings_unknown": "%(count)s of these bookings do not exist. Nothing was done.",
    "operator_taken": "%(username)s exists and is not an operator. Choose another sign-in name.",
    "file_unreadable": "The file %(name)s can't be read.",
    "class_unknown_here": "There is no such GPU class on this site.",
    "tier_unknown_here": "There is no such tier on this site.",
    "no_typical_price": "There is no typical price of %(gpu_class)s in %(tier)s. Add one.",
    (
        "policy_part_scenario"
    ): "It also sets %(names)s, which have one value for the whole site. Activate the version for all.",
    "scenario_object": "%(name)s is not an object.",
    "scenario_list": "%(name)s is not a list.",
    "scenario_needs": "Each of %(name)s needs %(needed)s.",
    "scenario_unknown": "There is no %(name)s. Known: %(known)s.",
    "scenario_missing": "There is no %(name)s on this site. A scenario changes what there is.",
    "scenario_value": "The value of %(name)s has another type, or is out of range.",
    "scenario_many": "A scenario has at most %(most)s values.",
    "policy_part_class": "There is no GPU class %(name)s.",
    "policy_part_tenant": "There is no organisation %(name)s.",
    "policy_part_of_classes": (
        "These parameters have one value for the whole site: %(names)s. For some GPU classes these may"
        " differ: %(able)s. Activate the version for all, or draft one without them."
    ),
    "policy_part_of_tenants": (
        "These parameters have one value for all organisations: %(names)s. For some organisations these may"
        " differ: %(able)s. Activate the version for all, or draft one without them."
    ),
    (
        "policy_part_of_parts"
    ): "Version %(number)s has parts of its own, so it can be in force for the whole site only.",
    (
        "policy_parts_overlap"
    ): "Version %(number)s is in force there already. Go back first, or choose other classes.",
    "policy_parts_many": "%(most)s versions are in force for parts already. Go back first.",
    "policy_unchanged": "These values are those of the version in force.",
    "policy_starts_past": "Choose a time in the future, or none to begin at once.",
    "policy_starts_far": "Choose a time within %(most)s days.",
    "policy_waiver": "There are other operators. One of them approves version %(number)s; nothing is waived.",
    "policy_own": "You wrote version %(number)s, so another operator approves it.",
    "policy_approved": "Version %(number)s is approved already.",
    "policy_not_waiting": "Version %(number)s is not waiting to go into force.",
    "policy_rollback_reason": "Say why you go back: the log keeps it.",
    (
        "policy_never_live"
    ): "Version %(number)s was never in force, so there is nothing to go back to. Activate it.",
    "policy_no_earlier": "No other version has been in force yet.",
    "policy_grid": "grid must not be longer than horizon.",
    "policy_escalation": "unbooked_end_after needs unbooked_warn_after, at least a minute before it.",
    "policy_unknown": "There is no parameter %(name)s. Known: %(known)s.",
    "policy_whole": "%(name)s must be a whole number from %(least)s to %(most)s.",
    "policy_list": "%(name)s must be a list of names. Known: %(known)s.",
    "policy_tiers": "%(name)s must be an object with whole numbers of seconds from 0 to %(most)s by tier.",
    "policy_tier": "There is no tier %(tier)s. Known: %(known)s.",
    "policy_classes": "%(name)s must be an object with whole numbers from 0 to %(most)s by GPU class.",
    "policy_class": "There is no GPU class %(name)s. Known: %(known)s.",
    "policy_class_text": "Enter each GPU class once with a number of GPUs, such as h100 2; not %(entry)s.",
    "policy_tier_text": "Enter each tier once with a duration, such as standard 4h; not %(entry)s.",
    "policy_name": "%(name)s has no %(each)s. Known: %(known)s.",
    "policy_twice": "%(name)s has %(each)s twice.",
    "policy_order_keys": "order must have every key; missing: %(missing)s.",
    "policy_order_first": "order must begin with %(key)s, because pauses do, too.",
}
