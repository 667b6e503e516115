"""The catalogue of the sentences of reasons, by code.

A sentence names no clock time, because each page knows its reader's zone: `frees_at` says when.
"""

from collections.abc import Callable

from allocation.words.amounts import Facts, data_place
from allocation.words.queue import makes_room_text, overtaken_text
from allocation.words.where import WHERE
from tenants.platform.nouns import Plural, Sentence, plural

Text = Callable[[Facts], str] | Sentence


def sentence_of(code: str, facts: Facts) -> str:
    """Returns the sentence of a code. KeyError: no sentence for it, or a fact is missing."""
    text = SENTENCES[code]
    return text(facts) if callable(text) else str(text % facts)


def _unknown_class(facts: Facts) -> str:
    if "gpu_class" not in facts:
        return "No GPU class was named."
    return "There is no GPU class %(gpu_class)s in the fleet." % facts


def _impossible_together(facts: Facts) -> str:
    if "profile" in facts and facts["level"] == "domain":
        return "Slices have no NVLink: ask for one node, or for whole GPUs."
    found = "No %(group)s has room for more than %(most_shape)s" % facts
    return _and_needed(found, facts)


def _gpus_busy(facts: Facts) -> str:
    if facts["level"] != "any":
        return "No %(group)s has %(shape)s free for that long." % facts
    if "planned" not in facts:
        found = "Running and scheduled bookings leave %(left_shape)s for that long" % facts
    else:
        text = plural(
            "%(left_shape)s is free for that long",
            "%(left_shape)s are free for that long",
            int(facts["left"]),
        )
        found = text % facts
    return _and_needed(found, facts)


def _and_needed(found: str, facts: Facts) -> str:
    """What there is, then how many are needed: "1 of 2" would read as a part of all that exist."""
    needs = plural("%(asked)s is needed", "%(asked)s are needed", int(facts["asked"])) % facts
    return f"{found}; {needs}."


def _quota(whose: str) -> Callable[[Facts], str]:
    def text(facts: Facts) -> str:
        names = _WHOSE_INSIDE if "dated" in facts else _WHOSE
        words = Facts({**facts, "name": str(names[whose])})
        if "used" not in facts:
            text = "%(name)s may use %(limit_gpus)s %(gpu_class)s at once; this needs %(asked_gpus)s."
        elif "dated" in facts:
            text = (
                "A limit at some times: %(name)s may use %(limit_gpus)s %(gpu_class)s in a part of "
                "this window; %(used_gpus)s in use or booked then, and this needs %(asked_gpus)s."
            )
        else:
            text = (
                "%(name)s has %(used_gpus)s of %(limit_gpus)s %(gpu_class)s in use or booked; "
                "this needs %(asked_gpus)s more."
            )
        return text % words

    return text


def _person_quota(facts: Facts) -> str:
    words = Facts({**facts, "place": str(_PLACES[str(facts.get("whose", "project"))])})
    if "used" not in facts:
        text = (
            "A person may use %(limit_gpus)s %(gpu_class)s at once in %(place)s; this needs %(asked_gpus)s."
        )
    elif "dated" in facts:
        text = (
            "A limit at some times: its owner may use %(limit_gpus)s %(gpu_class)s in %(place)s in "
            "a part of this window; %(used_gpus)s in use or booked then, and this needs "
            "%(asked_gpus)s."
        )
    else:
        text = (
            "Its owner has %(used_gpus)s of the %(limit_gpus)s %(gpu_class)s that they may use at "
            "once in %(place)s in use or booked; this needs %(asked_gpus)s more."
        )
    return text % words


def _window_past(facts: Facts) -> str:
    return "The window has begun already." if "begun" in facts else "The window is over."


def _deadline_unreachable(facts: Facts) -> str:
    if "busy" in facts:
        return "It cannot be finished before its deadline."
    return "The booking is longer than the time before its deadline."


def _hardware_out(facts: Facts) -> str:
    if "gpus" not in facts:
        return "A GPU of this booking is being taken out of service."
    return "%(out)s of %(gpus)s %(gpu_class)s are out of service." % facts


def _overrun(facts: Facts) -> str:
    if "ends_late" in facts:
        return "A booking on its GPUs ends later than planned."
    return "Its GPUs are taken."


_NEAR = {
    "switch": "%(shape)s fit on %(on_nodes)s, behind one PCIe switch.",
    "processor": "%(shape)s fit on %(on_nodes)s, next to one processor.",
    "node": "%(shape)s fit on %(on_nodes)s, next to different processors.",
}


def _placed(facts: Facts) -> str:
    return _NEAR.get(str(facts.get("near")), "%(shape)s fit on %(on_nodes)s.") % facts


def _mode_fixed(facts: Facts) -> str:
    is_all = facts["fixed"] == facts["gpus"]
    if facts["mode"] == "whole":
        text = (
            "All %(gpu_class)s GPUs are set to whole GPUs only."
            if is_all
            else "Set to whole GPUs only: %(fixed)s of %(gpus)s %(gpu_class)s."
        )
    else:
        text = (
            "All %(gpu_class)s GPUs are set to slices only."
            if is_all
            else "Set to slices only: %(fixed)s of %(gpus)s %(gpu_class)s."
        )
    return text % facts


def _mode_pinned(facts: Facts) -> str:
    if facts["mode"] == "whole":
        text = "An operator has pinned %(pinned)s of %(gpus)s %(gpu_class)s to whole GPUs only."
    else:
        text = "An operator has pinned %(pinned)s of %(gpus)s %(gpu_class)s to slices only."
    return text % facts


def _quota_cut(facts: Facts) -> str:
    first = "A limit is lower than when the start was planned."
    if "because" not in facts:
        return first
    return f"{first} {sentence_of(str(facts['because']), facts)}"


def _maintenance(facts: Facts) -> str:
    count = int(facts["gpus"])
    if facts["which"] == "class":
        text = plural(
            "%(gpus)s GPU of %(gpu_class)s is in maintenance for some of that time.",
            "%(gpus)s GPUs of %(gpu_class)s are in maintenance for some of that time.",
            count,
        )
    elif facts["which"] == "booking":
        text = plural(
            "%(gpus)s GPU of this booking is in maintenance for some of that time.",
            "%(gpus)s GPUs of this booking are in maintenance for some of that time.",
            count,
        )
    else:
        text = plural(
            "%(gpus)s GPU it was planned on is in maintenance for some of that time.",
            "%(gpus)s GPUs it was planned on are in maintenance for some of that time.",
            count,
        )
    return text % facts


def _guarantee_only(facts: Facts) -> str:
    left = Facts({**facts, "left": int(facts["guaranteed"]) - int(facts["used"])})
    if "borrow_seconds" in facts:
        text = (
            "A tier that is never paused can borrow for at most %(borrow_length)s: %(left_gpus)s "
            "of the %(guaranteed_gpus)s %(gpu_class)s that your project can have of your "
            "organisation's guarantee are left; this needs %(asked_gpus)s."
        )
        return text % left + _of_tiers(facts)
    text = (
        "A tier that is never paused can't borrow: %(left_gpus)s of the %(guaranteed_gpus)s "
        "%(gpu_class)s that your project can have of your organisation's guarantee are left; this "
        "needs %(asked_gpus)s."
    )
    return text % left + _of_tiers(facts)


def _of_tiers(facts: Facts) -> str:
    """What of the guarantee is for other tiers only."""
    if "part" not in facts:
        return ""
    return " " + "%(part_gpus)s more are guaranteed to other tiers only: %(tiers)s." % facts


def _gpu_hours(facts: Facts) -> str:
    words = Facts({**facts, "name": str(_WHOSE[str(facts["whose"])])})
    if "days" not in facts:
        text = (
            "%(name)s may have %(limit_hours)s in the period; %(used_grouped)s are "
            "used or booked, and this needs %(asked_grouped)s."
        )
        return text % words
    text = (
        "%(name)s may have %(limit_hours)s in any %(span)s; %(used_grouped)s are "
        "used or booked, and this needs %(asked_grouped)s."
    )
    return text % words


def _dependency_failed(facts: Facts) -> str:
    if "booking" not in facts:
        return (
            "It depends on a booking of another project, which did not end as it needs. It is "
            "cancelled at no cost."
        )
    return "It depends on %(booking)s, which did not end as it needs. It is cancelled at no cost." % facts


def _awaits_booking(facts: Facts) -> str:
    if "booking" not in facts:
        return "It is planned when a booking of another project is over."
    return "It is planned when %(booking)s is over." % facts


def _borrowed(facts: Facts) -> str:
    if "lasts" in facts:
        return str(_BORROWED_UNTIL_ITS_END[bool(facts["own"])] % facts)
    return str(_BORROWED[bool(facts["own"]), "at_risk_from" in facts] % facts)


def _taken_back(facts: Facts) -> str:
    """The pause of work outside the guarantee, or outside the part of the guarantee that a project
    has."""
    if facts.get("whose") == "project":
        because = "A booking within its project's part of your guarantee needs the GPUs."
    else:
        because = "A booking within its guarantee needs the GPUs that this booking borrows."
    return _least_lost(because)(facts)


def _least_lost(because: Sentence) -> Callable[[Facts], str]:
    def paused(facts: Facts) -> str:
        minutes = -(-int(facts["lost"]) // 60)
        text = plural(
            "%(because)s The booking that loses the least is paused: %(minutes)s GPU-minute since "
            "the last save.",
            "%(because)s The booking that loses the least is paused: %(minutes)s GPU-minutes since "
            "the last save.",
            minutes,
        )
        return text % {"because": because, "minutes": f"{minutes:,}"}

    return paused


def _host_too_small(facts: Facts) -> str:
    if facts["most"] and facts["level"] == "any":
        return "The nodes have %(host)s for %(most)s %(gpu_class)s in all." % facts
    return "No node has %(host)s for each of %(asked)s %(gpu_class)s." % facts


def _pin_too_small(facts: Facts) -> str:
    if facts["level"] == "any":
        return _and_needed("%(pins)s has room for %(most_shape)s" % facts, facts)
    return _and_needed("%(pins)s has room for %(most_shape)s in one %(group)s" % facts, facts)


def _pinned(facts: Facts) -> str:
    if facts["elsewhere"]:
        text = "It is pinned to %(pins)s, which is not free for that long; other GPUs are free."
        return text % facts
    return "It is pinned to %(pins)s, which is not free for that long." % facts


def _start_slow(facts: Facts) -> str:
    if facts["answers"]:
        first = "%(node)s takes unusually long to prepare the GPUs." % facts
    else:
        first = "%(node)s does not answer." % facts
    return f"{first} {'Nothing is charged until the GPUs are handed over.'}"


_WHOSE = {
    "tenant": "Your organisation",
    "project": "Your project",
    "lab": "Your lab",
}
_WHOSE_INSIDE = {
    "tenant": "your organisation",
    "project": "your project",
    "lab": "your lab",
}
_PLACES = {
    "tenant": "your organisation",
    "project": "the project",
}
# By whether some GPUs are the own ones, and whether the owner of the others waits for them.
_BORROWED_UNTIL_ITS_END = {
    False: "On borrowed GPUs: never paused, and at most as long as its tier can borrow.",
    True: (
        "On %(own_gpus)s own and %(borrowed_gpus)s borrowed GPUs: never paused, and at most as long as "
        "its tier can borrow."
    ),
}
_BORROWED = {
    (False, False): "On borrowed GPUs: can be paused when their owner needs them.",
    (False, True): "On borrowed GPUs: can be paused, because their owner is waiting for them.",
    (True, False): (
        "On %(own_gpus)s own and %(borrowed_gpus)s borrowed GPUs: can be paused when the owner of "
        "the borrowed ones needs them."
    ),
    (True, True): (
        "On %(own_gpus)s own and %(borrowed_gpus)s borrowed GPUs: can be paused, because the owner "
        "of the borrowed ones is waiting for them."
    ),
}
_MODE_CHANGES = {
    "sliced": Plural(
        "%(gpus)s %(gpu_class)s GPU changes to slices first, which takes %(seconds)s s on an empty GPU.",
        "%(gpus)s %(gpu_class)s GPUs change to slices first, which takes %(seconds)s s on an empty GPU.",
        "gpus",
    ),
    "whole": Plural(
        "%(gpus)s %(gpu_class)s GPU changes to whole first, which takes %(seconds)s s on an empty GPU.",
        "%(gpus)s %(gpu_class)s GPUs change to whole first, which takes %(seconds)s s on an empty GPU.",
        "gpus",
    ),
}
_PROBLEMS = {
    "gone": "The booking that was to get the GPUs is no longer waiting.",
    "moved": "A booking that was to move no longer runs there, or cannot be paused now.",
    "taken": "A place that the order needs is taken, out of service, or on a node that does not answer.",
    "too_late": "The booking that was to get the GPUs would end after its deadline.",
    "limit": "A limit of its organisation or project is reached.",
}
SENTENCES: dict[str, Text] = {
    "unknown_class": _unknown_class,
    "impossible_profile": "%(gpu_class)s GPUs have no slice %(profile)s.",
    "impossible_together": _impossible_together,
    "gpus_busy": _gpus_busy,
    "line": Plural(
        "Ahead in the queue for %(gpu_class)s: %(ahead)s booking, %(ahead_units_gpus)s GPUs.",
        "Ahead in the queue for %(gpu_class)s: %(ahead)s bookings, %(ahead_units_gpus)s GPUs.",
        "ahead",
    ),
    "tenant_quota": _quota("tenant"),
    "project_quota": _quota("project"),
    "lab_quota": _quota("lab"),
    "person_quota": _person_quota,
    "not_enough_gpus": "The fleet has room for %(most)s × %(kind)s in all.",
    "advance_window": "The start is further ahead than bookings can be planned.",
    "window_past": _window_past,
    "deadline_passed": "The deadline has passed.",
    "deadline_at_risk": (
        "No start before its deadline is free now. It keeps its place in the queue until its last "
        "possible start, because other bookings may end early."
    ),
    "behind_the_plan": (
        "Only the first %(depth)s bookings of the queue have planned starts. This booking gets one "
        "when it is among them, or starts earlier if GPUs are free."
    ),
    "missed": "Its last possible start has passed; other bookings went first.",
    "deadline_unreachable": _deadline_unreachable,
    "window_busy": "Other bookings have the GPUs for some of that time.",
    "hardware_out": _hardware_out,
    "not_before": "You asked for a start no earlier than this.",
    "no_room_in_horizon": "There is no free time as far ahead as bookings are planned.",
    "extension_busy": "Another booking has the GPUs after this one.",
    "hardware_lost": "GPUs it was planned on are out of service.",
    "overrun": _overrun,
    "too_short": "The booking has no time left.",
    "mode_fixed": _mode_fixed,
    "quota_cut": _quota_cut,
    "maintenance": _maintenance,
    "placed": _placed,
    "ask_changed": "The request has changed.",
    "not_live": "The booking has nothing running or planned that could be extended.",
    "guarantee_only": _guarantee_only,
    "lent_out": (
        "%(borrowed_gpus)s of the %(asked_gpus)s %(gpu_class)s would have to be borrowed, "
        "and others do not lend so many."
    ),
    "gpu_hours": _gpu_hours,
    "borrowed": _borrowed,
    "budget_drained": (
        "The budget of %(owner)s has reached %(percent)s %%, so nothing new starts until its share "
        "is lower. Its admins can raise it."
    ),
    "budget_paused": (
        "The budget of %(owner)s has reached %(percent)s %%, so what runs is paused until its "
        "share is lower. Its admins can raise it."
    ),
    "machine_leaves": "The provider of %(node)s takes it back.",
    "limit_cut": (
        "The limit of %(owner)s for %(gpu_class)s was lowered below what is in use, and what is above it "
        "is paused. It resumes as soon as the limit allows it."
    ),
    "operator_paused": "An operator paused it: %(why)s.",
    "stopped": "Operators have stopped new work of %(owner)s: %(why)s. It keeps its place in the queue.",
    "makes_room": makes_room_text,
    "taken_back": _taken_back,
    "higher_tier": _least_lost("A booking of a higher tier in your organisation needs the GPUs."),
    "one_class": _least_lost(
        "A booking of one GPU class needs the GPUs. Bookings of several classes in a tier that "
        "may be paused are paused before others."
    ),
    "free_room_only": (
        "It uses several GPU classes in a tier that may be paused: it starts when GPUs of all its "
        "classes are free, after the bookings of one class, and nobody is paused for it."
    ),
    "claims_rest": (
        "For some time nobody is paused for this person's bookings on %(gpu_class)s: one of them "
        "was cancelled after others had notice for it."
    ),
    "headroom": (
        "The policy of the site keeps %(gpus)s %(gpu_class)s free at expected peaks, for short work that "
        "has to start at once. What ends before the peak can start."
    ),
    "fairer_share": _least_lost("A booking of an organisation that borrows less than yours needs the GPUs."),
    "room_promised": "A higher-priority booking needs the GPUs of this booking.",
    "host_busy": "GPUs are free, but no node with free GPUs has %(host)s free for that long.",
    "host_too_small": _host_too_small,
    "share_of_one": "A share is a part of one whole GPU.",
    (
        "series_conflict"
    ): "Another date of the series can't be booked, and the request is for all dates or none.",
    "class_too_slow": "%(gpu_class)s needs more time for it than there is before the deadline.",
    "laid_anew": "It has other GPUs at its own time, so that more bookings fit.",
    **WHERE,
    "data_place": data_place,
    "pin_elsewhere": "There are no %(gpu_class)s on %(pins)s.",
    "pin_too_small": _pin_too_small,
    "pinned": _pinned,
    "pin_out": "%(pins)s: out of service.",
    "none_in_service": (
        "%(out)s of %(gpus)s %(gpu_class)s are out of service or do not answer, so no start "
        "can be planned. Bookings keep their place in the queue until they are back."
    ),
    "idle": "Its GPUs were idle, and another booking starts earlier with them.",
    "moved_together": (
        "An operator moves it to other GPUs, so that a waiting booking can start sooner. "
        "It resumes there as soon as it has left these."
    ),
    "order_stale": lambda facts: str(_PROBLEMS[str(facts["problem"])]),
    "node_unanswering": "%(out)s of %(gpus)s %(gpu_class)s are on nodes that do not answer.",
    "change_no_room": "The change does not fit, so the booking keeps what it has.",
    "change_weaker": (
        "With this change other bookings could delay its start, so it keeps what it has. Accept a "
        "weaker start, or change less."
    ),
    "dependency_failed": _dependency_failed,
    "awaits_booking": _awaits_booking,
    "change_begun": "The booking began before the change was decided, so it keeps what it has.",
    "approval_declined": "The change was not approved, so the booking keeps what it has.",
    "approval_expired": "Nobody approved the change in time, so the booking keeps what it has.",
    "change_awaited": "Other bookings are paused for this one, so it can only ask for less or be cancelled.",
    "suspended_there": "It resumes where it was suspended; on other GPUs it would start from its last save.",
    "mode_pinned": _mode_pinned,
    "start_slow": _start_slow,
    "node_silent": "%(node)s does not answer, so this booking needs other GPUs.",
    "node_conflict": "%(node)s reported the run as over too early, so this booking needs other GPUs.",
    "overtaken": lambda facts: overtaken_text(str(facts["rule"]), is_own=bool(facts["own_tenant"])),
    "mode_change": lambda facts: str(_MODE_CHANGES[str(facts["mode"])] % facts),
}
