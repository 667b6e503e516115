"""What a page's forms do: one act, then back to the page; or the page again with the reason."""

from collections.abc import Callable, Mapping
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, QueryDict

from tenants.platform.errors import Refused, missing
from tenants.platform.form_text import form_text_error

FormAction = Callable[[QueryDict], str]
"""Does what a form asks and returns the sentence that says so."""

SHOWN_ON_PAGE = frozenset({"invalid", "conflict", "quota", "budget"})


def form_action_run(request: HttpRequest, acts: Mapping[str, FormAction]) -> Refused | None:
    """Runs the act that the posted form names, and leaves its sentence for the next page.

    Returns the refusal that belongs beside the form. Rights and missing objects raise `Refused`:
    they get a page of their own.
    """
    fault = form_text_error(request)
    if fault is not None:
        return fault
    act = acts.get(request.POST.get("act", ""))
    if act is None:
        sentence = "This form is not known here. Load the page again."
        known = tuple({"act": name} for name in acts)
        return Refused("unknown_act", sentence, "invalid", "act", alternatives=known)
    try:
        sentence = act(request.POST)
    except Refused as refusal:
        if refusal.kind not in SHOWN_ON_PAGE:
            raise
        return refusal
    messages.success(request, sentence)
    return None


def id_read(form: QueryDict, key: str, noun: str) -> UUID:
    """The id under `key`. Raises Refused `not_found`: a mangled id is nobody's."""
    try:
        return UUID(form.get(key, ""))
    except ValueError:
        raise missing(noun, key) from None
