"""Points of lists to which features add themselves: what a list offers for its filters, and pages of a
person that the search finds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.http import HttpRequest

from tenants.access import Actor, PlatformActor
from tenants.web.navigation import Page

Holder: TypeAlias = Actor | PlatformActor


@dataclass(frozen=True, slots=True)
class ListMenu:
    """What stands at a list: a template with its context in `data`."""

    template: str
    data: Any


ListMenus: TypeAlias = Callable[[HttpRequest, Holder, str], ListMenu]

LIST_MENUS: list[ListMenus] = []
"""Each returns a menu of the list with this name in `tenants.rules.lists`, with its present filters."""

OWN_PAGES: list[Callable[[Holder], Iterable[Page]]] = []
"""Each returns pages of a person that have a name of their own, for the search."""


def list_menus(request: HttpRequest, holder: Holder, name: str) -> list[ListMenu]:
    """Returns the menus of a list."""
    return [menu(request, holder, name) for menu in LIST_MENUS]


def own_pages(holder: Holder) -> list[Page]:
    """Returns the person's own pages."""
    return [page for pages in OWN_PAGES for page in pages(holder)]
