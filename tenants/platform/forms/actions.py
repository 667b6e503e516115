"""Actions of a page's forms: each runs and redirects, or shows the page with the error."""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, QueryDict

from tenants.platform.errors import Refused, missing
from tenants.platform.forms.text import form_text_error
from tenants.platform.words import refusal_text

FormAction = Callable[[QueryDict], str]
"""Carries out a posted form and returns the sentence that reports success."""

MOST_DIGITS = 18
"""Of a number that the database can have as an id."""
SHOWN_ON_PAGE = frozenset({"invalid", "conflict", "quota", "budget"})


def form_action_run(request: HttpRequest, acts: Mapping[str, FormAction]) -> Refused | None:
    """Runs the action that the posted form names, and stores its sentence for the next page.

    Returns a refusal that is shown next to the form. Missing rights and missing objects raise
    `Refused`, which is shown as a separate page.
    """
    try:
        sentence = acts[form_act_read(request, acts)](request.POST)
    except Refused as refusal:
        if refusal.kind not in SHOWN_ON_PAGE:
            raise
        return refusal
    messages.success(request, sentence)
    return None


def form_act_read(request: HttpRequest, known: Iterable[str]) -> str:
    """The name of the posted form. Raises Refused for an unknown one, or for invisible text."""
    fault = form_text_error(request)
    if fault is not None:
        raise fault
    act = request.POST.get("act", "")
    if act not in known:
        sentence = refusal_text("unknown_act")
        alternatives = tuple({"act": name} for name in known)
        raise Refused("unknown_act", sentence, "invalid", "act", alternatives=alternatives)
    return act


def id_read(form: QueryDict, key: str, noun: str) -> UUID:
    """The id under `key`. Raises Refused `not_found`, also for a malformed id."""
    return id_text_read(form.get(key, ""), key, noun)


def id_text_read(text: str, key: str, noun: str) -> UUID:
    """The id in `text`. Raises Refused `not_found` for a malformed one."""
    try:
        return UUID(text)
    except ValueError:
        raise missing(noun, key) from None


def number_id_read(form: QueryDict, key: str, noun: str) -> int:
    """The number of a row under `key`. Raises Refused `not_found`, also for what is no number."""
    number = number_text_read(form.get(key, ""))
    if number is None:
        raise missing(noun, key)
    return number


def number_text_read(text: str) -> int | None:
    """The number of a row in plain digits; None for other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def ids_read(form: QueryDict, key: str, noun: str) -> list[UUID]:
    """All ids under `key`. Raises Refused `not_found` for a malformed one."""
    try:
        return [UUID(each) for each in form.getlist(key)]
    except ValueError:
        raise missing(noun, key) from None
