"""The sentences of refusals of input that all apps read, by code."""

from collections.abc import Mapping
from typing import Any

from tenants.platform.nouns import Sentence, plural, unit_text


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code]) % facts


def local_time_text(code: str, time: str, zone: str) -> str:
    """Returns what a clock change does to a local time: `first`, `second` or `skipped`."""
    return str(_LOCAL_TIMES[code]) % {"time": time, "zone": zone}


def missing_text(noun: str) -> str:
    """Returns the sentence for an object that is missing. KeyError: an unknown noun."""
    return f"There is no such {NOUNS[noun]}, or you have no access to it."


def owner_text(owner: str) -> str:
    """Returns who set a rule; an unknown owner is the name of a person, project or tenant."""
    return str(_OWNERS[owner]) if owner in _OWNERS else f"set for {owner}"


def more_text(more: Mapping[str, str]) -> str:
    """What a request for an exception asks for, as in `2 more GPUs`."""
    kind, amount = more.get("kind", ""), more.get("amount", "")
    if kind in ("length", "shorter", "notice"):
        # What is named is enough: rounded up to a tenth of an hour.
        amount = f"{-(-int(amount) // 360) / 10:.1f}".removesuffix(".0")
    text = _more(kind, 1 if amount == "1" else 2) % {"amount": amount}
    return unit_text(text, more.get("gpu_class", ""))


def _more(kind: str, count: int) -> str:
    """The text by the number of what is countable."""
    texts = {
        "quota": plural("%(amount)s more GPU", "%(amount)s more GPUs", count),
        "lab_quota": plural("%(amount)s more GPU for the lab", "%(amount)s more GPUs for the lab", count),
        "person_quota": plural("%(amount)s more GPU for you", "%(amount)s more GPUs for you", count),
        "gpu_hours": plural("%(amount)s more GPU-hour", "%(amount)s more GPU-hours", count),
        "open_bookings": plural("%(amount)s more open booking", "%(amount)s more open bookings", count),
        "open_gpus": plural("%(amount)s more GPU at once", "%(amount)s more GPUs at once", count),
    }
    return texts.get(kind) or str(_MORE.get(kind, _MORE_OF_ANY))


_LOCAL_TIMES: dict[str, Sentence] = {
    "first": "Clocks show %(time)s twice that night: the first one, %(zone)s, is meant.",
    "second": "Clocks show %(time)s twice that night: the second one, %(zone)s, is meant.",
    "skipped": "Clocks go forward that night, so %(time)s does not exist in %(zone)s.",
}

_SENTENCES: dict[str, Sentence] = {
    "text_too_long": "The text has %(length)s characters, and at most %(most)s are allowed.",
    "invisible_character": "The text has the invisible character U+%(point)s. Type it again without it.",
    "bad_amount": (
        "Write the amount in digits with a point, such as 1800.50 or 1,800.50: below one billion, "
        "without signs or exponents."
    ),
    "amount_currency": "Amounts of this site are in %(currency)s.",
    "amount_places": "Use at most %(places)s digits after the point.",
    "bad_peak_hours": "Write the hours as days and whole hours, such as “Mon-Fri 8-20, Sat 10-14”.",
    "bad_zone": "Enter a time zone such as Europe/Berlin.",
    "unknown_act": "This page has changed. Reload it, then send the form again.",
    "too_many_labels": "There are %(labels)s labels; at most %(max_labels)s are possible.",
    "label_twice": "The label %(key)s occurs twice. Write labels such as team=vision.",
    "label_empty": "The label %(key)s needs a value. Write labels such as team=vision.",
    "bad_reference": "Enter a URL or the key of a ticket, up to %(max_reference)s characters without spaces.",
    "reference_scheme": "The URL of a reference starts with https://.",
    "labels_type": 'Labels must be an object whose values are texts, such as {"team": "vision"}.',
    "label_key": (
        "A label's key has 1 to %(max_key)s lower-case letters, digits and . _ - /, and "
        "begins and ends with a letter or a digit."
    ),
    "label_reserved": "Each charge already has the tag %(key)s. Choose another key.",
    "label_value": "The value of %(key)s has 1 to %(max_value)s characters and no comma.",
    "too_deep": "The JSON may be nested at most %(max_depth)s levels deep.",
    "text_bytes": "Text may not contain NUL or unpaired surrogates.",
    "body_object": "The body must be a JSON object.",
    "media_type": "Send the body as application/json in UTF-8.",
    "body_compressed": "Send the body uncompressed.",
    "body_json": "The body is not valid JSON in UTF-8.",
    "json_beyond": "A number of the body has too large or too small an exponent.",
    "json_infinite": "%(name)s is not valid JSON: numbers must be finite.",
    "repeated_field": "A JSON object has the same field twice.",
    "body_too_large": "A request body may have at most 1 MiB.",
    "unknown_field": "There is no field %(name)s here. The fields: %(names)s.",
    "no_fields": "There is no field %(name)s here: nothing can be sent.",
    "choose_one_of": "Choose one of: %(choices)s.",
    "bad_amount_text": "Write the amount as plain digits with a point, such as 1000.50.",
    "instant_form": "Write a time such as 2026-11-21T14:00:00Z.",
    "instant_offset": "Add an offset from UTC to the time, such as Z or +01:00.",
    "no_such_instant": "This time does not exist.",
    "instant_range": "This time is out of range.",
    "number_least": "Enter at least %(least)s.",
    "number_most": "Enter at most %(most)s.",
    "value_missing": "This is needed.",
    "day_form": "Write a day such as 2026-11-21.",
    "moment_form": "Enter a date and a time.",
    "day_range": "This day is out of range.",
    "duration_zero": "The duration must be more than zero.",
    "duration_form": "Write the duration in whole seconds, or such as PT6H or P1DT12H.",
    "repeated_param": "Send each parameter only once.",
    "bad_cursor": "This cursor does not belong to this list.",
}

NOUNS: dict[str, Sentence] = {
    "access": "access",
    "account": "account",
    "address": "address",
    "announcement": "announcement",
    "failed message": "failed message",
    "approval": "approval",
    "approval rule": "approval rule",
    "array": "array",
    "booking": "booking",
    "budget": "budget",
    "calendar": "calendar",
    "campaign": "campaign",
    "machine": "machine",
    "operator's role": "operator's role",
    "plan": "plan",
    "notebook": "notebook",
    "script": "script",
    "pause": "pause",
    "appeal": "objection",
    "hand-over": "hand-over",
    "backlog rule": "rule for the backlog",
    "forecast rule": "rule for the forecast",
    "sprint rule": "rule for sprints",
    "chat channel": "chat channel",
    "cluster": "cluster",
    "connection": "connection",
    "day of this budget": "day of this budget",
    "decision": "decision",
    "delivery": "delivery",
    "dispute": "dispute",
    "draft": "draft",
    "entry": "entry",
    "file": "file",
    "GPU": "GPU",
    "GPU class": "GPU class",
    "GPU model": "GPU model",
    "GPU type": "GPU type",
    "group": "group",
    "invitation": "invitation",
    "lab": "lab",
    "list": "list",
    "saved view": "saved view",
    "lead": "lead",
    "limit cut": "limit cut",
    "dated guarantee": "guarantee between dates",
    "limit": "limit",
    "maintenance": "maintenance",
    "member": "member",
    "member of this project": "member of this project",
    "member who may read this statement": "member who may read this statement",
    "membership": "membership",
    "node": "node",
    "engine": "engine",
    "host": "host that the engine reports",
    "notification": "notification",
    "offer": "offer",
    "page": "page",
    "passkey": "passkey",
    "person": "person",
    "policy hook": "policy hook",
    "policy version": "policy version",
    "shadow": "shadow",
    "trial": "trial",
    "price book": "price book",
    "project": "project",
    "rack": "rack",
    "zone": "zone",
    "replay": "replay",
    "report": "report",
    "request": "request",
    "requirement": "requirement",
    "series": "series",
    "service account": "service account",
    "session": "session",
    "share": "share",
    "stand-in": "stand-in",
    "stop": "stop",
    "tenant": "tenant",
    "tier": "tier",
    "token": "token",
    "version": "version",
    "webhook": "webhook",
    "workload": "kind of work",
}

_OWNERS: dict[str, Sentence] = {
    "operator": "set by the operator",
    "tenant_admin": "set by the organisation's admin",
    "lead": "set by the project's lead",
    "asker": "which follows from your request",
    "hardware": "which follows from the hardware",
    "others": "which follows from other bookings",
}

# What an owner of a limit can be asked for, by the kind of the limit.
_MORE: dict[str, Sentence] = {
    "budget": "%(amount)s more budget",
    "length": "%(amount)s h more",
    "shorter": "%(amount)s h less",
    "notice": "a start %(amount)s h beyond the notice",
    "start_hours": "a start outside these hours",
    "tier_class": "this class in the tier",
    "tier_audience": "the use of this tier",
}
_MORE_OF_ANY = "%(amount)s more"
