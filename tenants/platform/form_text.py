"""Text of addresses and forms, before any page reads it: no character that can't be seen."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from django.http import Http404, HttpRequest, HttpResponse, QueryDict

from tenants.platform.errors import Refused, invalid
from tenants.platform.text import seen_only, unseen, unseen_sentence

if TYPE_CHECKING:
    from django.http.request import _ImmutableQueryDict

_FAULT = "portal.text_fault"
_API = "/api/"


class TextMiddleware:
    """Takes unseen characters out of pages' parameters; REST refuses them itself.

    An address keeps what is left of it. A form is refused: `form_fault` says at which field.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The page's answer. Raises Http404 for a path that holds such a character."""
        if unseen(request.path_info):
            raise Http404
        if not request.path_info.startswith(_API):
            request.GET = _seen(request.GET)
            if request.method == "POST":
                fault = _fault(request.POST)
                if fault is not None:
                    request.META[_FAULT] = fault
                    request.POST = _seen(request.POST)
        return self.get_response(request)


def form_fault(request: HttpRequest) -> Refused | None:
    """The refusal of what was typed, told once."""
    fault: Refused | None = request.META.pop(_FAULT, None)
    return fault


def _fault(form: QueryDict) -> Refused | None:
    for name, values in form.lists():
        found = next(filter(None, map(unseen, [name, *map(str, values)])), "")
        if found:
            return invalid("bad_text", unseen_sentence(found), seen_only(name))
    return None


def _seen(given: "_ImmutableQueryDict") -> "_ImmutableQueryDict":
    if not any(unseen(str(text)) for name, texts in given.lists() for text in (name, *texts)):
        return given
    kept = QueryDict(mutable=True)
    for name, texts in given.lists():
        kept.setlist(seen_only(name), [seen_only(str(text)) for text in texts])
    kept._mutable = False
    return cast("_ImmutableQueryDict", kept)
