"""Forms of operators' pages that the reader's roles may not send: their inputs and buttons are disabled.

It is done in the finished page, so that no template can forget it.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.urls import Resolver404, resolve

from tenants.rules.operator_roles import Area

_MAIN = re.compile(r"<main\b[^>]*>")
_FORM = re.compile(r'<form\b(?=[^>]*\bmethod="post")[^>]*>.*?</form>', re.DOTALL)
_CONTROL = re.compile(r"<(button|input|select|textarea)\b(?![^>]*\sdisabled\b)")
_ACTION, _ID = re.compile(r'\baction="([^"]*)"'), re.compile(r'\bid="([^"]*)"')


@lru_cache(256)
def area_of_page(path: str) -> Area | None:
    """The area of the operators' page at the address; None for other pages."""
    try:
        found = resolve(path).func
    except Resolver404:
        return None
    area = getattr(found, "operator_area", None)
    return area if isinstance(area, Area) else None


def forms_lock(
    response: HttpResponse, path: str, may_act: Callable[[Area], bool], reason: Callable[[Area], str]
) -> None:
    """Disables each form in the main part of the page that is sent to an area in which the reader may
    not act, and says at the top why."""
    html = response.content.decode()
    start = _MAIN.search(html)
    if start is None:
        return
    locked: list[tuple[Area, str]] = []

    def lock(found: re.Match[str]) -> str:
        head = found[0].partition(">")[0]
        action = _ACTION.search(head)
        area = area_of_page(urlsplit(action[1] if action else "").path or path)
        if area is None or may_act(area):
            return found[0]
        named = _ID.search(head)
        locked.append((area, named[1] if named else ""))
        return _CONTROL.sub(r"<\1 disabled", found[0])

    main = _FORM.sub(lock, html[start.end() :])
    for name in (each for _, each in locked if each):
        main = re.sub(
            rf'<(button|input|select|textarea)\b(?=[^>]*\bform="{re.escape(name)}")', r"<\1 disabled", main
        )
    if locked:
        note = render_to_string("parts/locked.html", {"reason": reason(locked[0][0])})
        response.content = html[: start.end()] + note + main
