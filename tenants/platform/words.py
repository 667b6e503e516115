"""The sentences of refusals of input that all apps read, by code."""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from tenants.platform.units import unit_text


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code]) % facts


def local_time_text(code: str, time: str, zone: str) -> str:
    """Returns what a clock change does to a local time: `first`, `second` or `skipped`."""
    return str(_LOCAL_TIMES[code]) % {"time": time, "zone": zone}


def missing_text(noun: str) -> str:
    """Returns the sentence for an object that is missing. KeyError: an unknown noun."""
    return _("There is no such %(noun)s, or you have no access to it.") % {"noun": NOUNS[noun]}


def owner_text(owner: str) -> str:
    """Returns who set a rule; an unknown owner is the name of a person, project or tenant."""
    return str(_OWNERS[owner]) if owner in _OWNERS else _("set for %(name)s") % {"name": owner}


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
        "quota": ngettext("%(amount)s more GPU", "%(amount)s more GPUs", count),
        "lab_quota": ngettext("%(amount)s more GPU for the lab", "%(amount)s more GPUs for the lab", count),
        "person_quota": ngettext("%(amount)s more GPU for you", "%(amount)s more GPUs for you", count),
        "gpu_hours": ngettext("%(amount)s more GPU-hour", "%(amount)s more GPU-hours", count),
        "open_bookings": ngettext("%(amount)s more open booking", "%(amount)s more open bookings", count),
        "open_gpus": ngettext("%(amount)s more GPU at once", "%(amount)s more GPUs at once", count),
    }
    return texts.get(kind) or str(_MORE.get(kind, _MORE_OF_ANY))


_LOCAL_TIMES: dict[str, Promise] = {
    "first": gettext_lazy("Clocks show %(time)s twice that night: the first one, %(zone)s, is meant."),
    "second": gettext_lazy("Clocks show %(time)s twice that night: the second one, %(zone)s, is meant."),
    "skipped": gettext_lazy("Clocks go forward that night, so %(time)s does not exist in %(zone)s."),
}

_SENTENCES: dict[str, Promise] = {
    "invisible_character": gettext_lazy(
        "The text has the invisible character U+%(point)s. Type it again without it."
    ),
    "bad_amount": gettext_lazy(
        "Write the amount in digits with a point, such as 1800.50 or 1,800.50: below one billion, "
        "without signs or exponents."
    ),
    "amount_places": gettext_lazy("Use at most %(places)s digits after the point."),
    "bad_peak_hours": gettext_lazy(
        "Write the hours as days and whole hours, such as “Mon-Fri 8-20, Sat 10-14”."
    ),
    "bad_zone": gettext_lazy("Enter a time zone such as Europe/Berlin."),
    "unknown_act": gettext_lazy("This page has changed. Reload it, then send the form again."),
    "too_many_labels": gettext_lazy("There are %(labels)s labels; at most %(max_labels)s are possible."),
    "label_twice": gettext_lazy("The label %(key)s occurs twice. Write labels such as team=vision."),
    "label_empty": gettext_lazy("The label %(key)s needs a value. Write labels such as team=vision."),
    "bad_reference": gettext_lazy(
        "Enter a URL or the key of a ticket, up to %(max_reference)s characters without spaces."
    ),
    "reference_scheme": gettext_lazy("The URL of a reference starts with https://."),
    "labels_type": gettext_lazy(
        'Labels must be an object whose values are texts, such as {"team": "vision"}.'
    ),
    "label_key": gettext_lazy(
        "A label's key has 1 to %(max_key)s lower-case letters, digits and . _ - /, and "
        "begins and ends with a letter or a digit."
    ),
    "label_reserved": gettext_lazy("Each charge already has the tag %(key)s. Choose another key."),
    "label_value": gettext_lazy("The value of %(key)s has 1 to %(max_value)s characters and no comma."),
    "too_deep": gettext_lazy("The JSON may be nested at most %(max_depth)s levels deep."),
    "text_bytes": gettext_lazy("Text may not contain NUL or unpaired surrogates."),
    "body_object": gettext_lazy("The body must be a JSON object."),
    "media_type": gettext_lazy("Send the body as application/json in UTF-8."),
    "body_compressed": gettext_lazy("Send the body uncompressed."),
    "body_json": gettext_lazy("The body is not valid JSON in UTF-8."),
    "json_beyond": gettext_lazy("A number of the body has too large or too small an exponent."),
    "json_infinite": gettext_lazy("%(name)s is not valid JSON: numbers must be finite."),
    "repeated_field": gettext_lazy("A JSON object has the same field twice."),
    "body_too_large": gettext_lazy("A request body may have at most 1 MiB."),
    "unknown_field": gettext_lazy("There is no field %(name)s here. The fields: %(names)s."),
    "no_fields": gettext_lazy("There is no field %(name)s here: nothing can be sent."),
    "choose_one_of": gettext_lazy("Choose one of: %(choices)s."),
    "bad_amount_text": gettext_lazy("Write the amount as plain digits with a point, such as 1000.50."),
    "instant_form": gettext_lazy("Write a time such as 2026-11-21T14:00:00Z."),
    "instant_offset": gettext_lazy("Add an offset from UTC to the time, such as Z or +01:00."),
    "no_such_instant": gettext_lazy("This time does not exist."),
    "instant_range": gettext_lazy("This time is out of range."),
    "number_least": gettext_lazy("Enter at least %(least)s."),
    "number_most": gettext_lazy("Enter at most %(most)s."),
    "value_missing": gettext_lazy("This is needed."),
    "day_form": gettext_lazy("Write a day such as 2026-11-21."),
    "moment_form": gettext_lazy("Enter a date and a time."),
    "day_range": gettext_lazy("This day is out of range."),
    "duration_zero": gettext_lazy("The duration must be more than zero."),
    "duration_form": gettext_lazy("Write the duration in whole seconds, or such as PT6H or P1DT12H."),
    "repeated_param": gettext_lazy("Send each parameter only once."),
    "bad_cursor": gettext_lazy("This cursor does not belong to this list."),
}

NOUNS: dict[str, Promise] = {
    "access": gettext_lazy("access"),
    "account": gettext_lazy("account"),
    "address": gettext_lazy("address"),
    "announcement": gettext_lazy("announcement"),
    "failed message": gettext_lazy("failed message"),
    "approval": gettext_lazy("approval"),
    "approval rule": gettext_lazy("approval rule"),
    "array": gettext_lazy("array"),
    "booking": gettext_lazy("booking"),
    "budget": gettext_lazy("budget"),
    "calendar": gettext_lazy("calendar"),
    "campaign": gettext_lazy("campaign"),
    "machine": gettext_lazy("machine"),
    "operator's role": gettext_lazy("operator's role"),
    "plan": gettext_lazy("plan"),
    "notebook": gettext_lazy("notebook"),
    "script": gettext_lazy("script"),
    "pause": gettext_lazy("pause"),
    "appeal": gettext_lazy("objection"),
    "hand-over": gettext_lazy("hand-over"),
    "backlog rule": gettext_lazy("rule for the backlog"),
    "forecast rule": gettext_lazy("rule for the forecast"),
    "sprint rule": gettext_lazy("rule for sprints"),
    "chat channel": gettext_lazy("chat channel"),
    "cluster": gettext_lazy("cluster"),
    "connection": gettext_lazy("connection"),
    "day of this budget": gettext_lazy("day of this budget"),
    "decision": gettext_lazy("decision"),
    "delivery": gettext_lazy("delivery"),
    "dispute": gettext_lazy("dispute"),
    "draft": gettext_lazy("draft"),
    "entry": gettext_lazy("entry"),
    "file": gettext_lazy("file"),
    "GPU": gettext_lazy("GPU"),
    "GPU class": gettext_lazy("GPU class"),
    "GPU model": gettext_lazy("GPU model"),
    "GPU type": gettext_lazy("GPU type"),
    "group": gettext_lazy("group"),
    "invitation": gettext_lazy("invitation"),
    "lab": gettext_lazy("lab"),
    "list": gettext_lazy("list"),
    "saved view": gettext_lazy("saved view"),
    "lead": gettext_lazy("lead"),
    "limit cut": gettext_lazy("limit cut"),
    "dated guarantee": gettext_lazy("guarantee between dates"),
    "limit": gettext_lazy("limit"),
    "maintenance": gettext_lazy("maintenance"),
    "member": gettext_lazy("member"),
    "member of this project": gettext_lazy("member of this project"),
    "member who may read this statement": gettext_lazy("member who may read this statement"),
    "membership": gettext_lazy("membership"),
    "node": gettext_lazy("node"),
    "notification": gettext_lazy("notification"),
    "offer": gettext_lazy("offer"),
    "page": gettext_lazy("page"),
    "passkey": gettext_lazy("passkey"),
    "person": gettext_lazy("person"),
    "policy hook": gettext_lazy("policy hook"),
    "policy version": gettext_lazy("policy version"),
    "shadow": gettext_lazy("shadow"),
    "trial": gettext_lazy("trial"),
    "price book": gettext_lazy("price book"),
    "project": gettext_lazy("project"),
    "rack": gettext_lazy("rack"),
    "zone": gettext_lazy("zone"),
    "replay": gettext_lazy("replay"),
    "report": gettext_lazy("report"),
    "request": gettext_lazy("request"),
    "requirement": gettext_lazy("requirement"),
    "series": gettext_lazy("series"),
    "service account": gettext_lazy("service account"),
    "session": gettext_lazy("session"),
    "share": gettext_lazy("share"),
    "stand-in": gettext_lazy("stand-in"),
    "stop": gettext_lazy("stop"),
    "tenant": gettext_lazy("tenant"),
    "tier": gettext_lazy("tier"),
    "token": gettext_lazy("token"),
    "version": gettext_lazy("version"),
    "webhook": gettext_lazy("webhook"),
    "workload": gettext_lazy("kind of work"),
}

_OWNERS: dict[str, Promise] = {
    "operator": gettext_lazy("set by the operator"),
    "tenant_admin": gettext_lazy("set by the tenant's admin"),
    "lead": gettext_lazy("set by the project's lead"),
    "asker": gettext_lazy("which follows from your request"),
    "hardware": gettext_lazy("which follows from the hardware"),
    "others": gettext_lazy("which follows from other bookings"),
}

# What an owner of a limit can be asked for, by the kind of the limit.
_MORE: dict[str, Promise] = {
    "budget": gettext_lazy("%(amount)s more budget"),
    "length": gettext_lazy("%(amount)s h more"),
    "shorter": gettext_lazy("%(amount)s h less"),
    "notice": gettext_lazy("a start %(amount)s h beyond the notice"),
    "start_hours": gettext_lazy("a start outside these hours"),
    "tier_class": gettext_lazy("this class in the tier"),
    "tier_audience": gettext_lazy("the use of this tier"),
}
_MORE_OF_ANY = gettext_lazy("%(amount)s more")
