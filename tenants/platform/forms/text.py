"""Removes or refuses invisible characters in addresses and forms before a page reads them, and
finds no row by a number that none can have."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, cast

from django.http import Http404, HttpRequest, HttpResponse, QueryDict

from tenants.platform.errors import Refused, invalid
from tenants.platform.text import first_invisible, invisible_sentence, without_invisible

if TYPE_CHECKING:
    from django.http.request import _ImmutableQueryDict

_SENT = "portal.text_sent"
_API = "/api/"
_ENDS_OF_LINES = re.compile("[\r\n\t]")
_MOST_BIGINT = 2**63 - 1


class TextMiddleware:
    """Removes invisible characters from parameters of pages; REST refuses them itself.

    Query parameters are used without them. A form is refused: `form_text_error` names the field.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The page's answer. Raises Http404 for a path that holds such a character."""
        if first_invisible(request.path_info):
            raise Http404
        if not request.path_info.startswith(_API):
            request.GET = _without_invisible(request.GET)
            if request.method == "POST":
                kept = _without_invisible(request.POST)
                if kept is not request.POST:
                    request.META[_SENT], request.POST = request.POST, kept
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: object, args: Sequence[object], kwargs: dict[str, object]
    ) -> None:
        """Raises Http404 for a number in the path that is greater than every key and column."""
        if any(isinstance(each, int) and each > _MOST_BIGINT for each in kwargs.values()):
            raise Http404


def form_text_error(request: HttpRequest, paragraphs: Collection[str] = ()) -> Refused | None:
    """Returns the refusal of the posted text once, then None. Fields that are `paragraphs` may have
    several lines and tabs."""
    sent: _ImmutableQueryDict | None = request.META.pop(_SENT, None)
    if sent is None:
        return None
    fault = _text_error(sent, paragraphs)
    if fault is None:
        request.POST = sent
    return fault


def _text_error(form: QueryDict, paragraphs: Collection[str]) -> Refused | None:
    for name, values in form.lists():
        may_end = name in paragraphs
        texts = [_ENDS_OF_LINES.sub("", str(text)) if may_end else str(text) for text in values]
        found = next(filter(None, map(first_invisible, [name, *texts])), "")
        if found:
            return invalid("bad_text", invisible_sentence(found), without_invisible(name))
    return None


def _without_invisible(given: "_ImmutableQueryDict") -> "_ImmutableQueryDict":
    if not any(first_invisible(str(text)) for name, texts in given.lists() for text in (name, *texts)):
        return given
    kept = QueryDict(mutable=True)
    for name, texts in given.lists():
        kept.setlist(without_invisible(name), [without_invisible(str(text)) for text in texts])
    kept._mutable = False
    return cast("_ImmutableQueryDict", kept)
