"""Saved views: the menu of a list, the page of all of them, and that of one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from django.http import HttpRequest

from tenants.access import Actor, PlatformActor, operator_rights
from tenants.features.saved_views.models import SavedView
from tenants.features.saved_views.services import (
    Holder,
    ViewChangeTerms,
    ViewTerms,
    lists_of,
    may_change,
    may_share,
    view_change,
    view_end,
    view_one,
    view_save,
    views_of,
)
from tenants.models import User
from tenants.rules.lists import query_of
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, form_page, operator_form_page
from tenants.web.list_menu import LIST_MENUS, OWN_PAGES, ListMenu
from tenants.web.navigation import Page, pages_open


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view with its address, its filters as text, and where the reader changes it, if they may."""

    view: SavedView
    url: str
    filters: str
    is_mine: bool
    change_url: str


@dataclass(frozen=True, slots=True)
class ViewMenu:
    """The menu of a list. `query`: the filters that are in its address; `open`: the view that has them."""

    list: str
    query: str
    rows: tuple[ViewRow, ...]
    open: ViewRow | None
    may_share: bool
    base: str


def _base(actor: Holder) -> str:
    return f"/t/{actor.tenant_slug}/" if isinstance(actor, Actor) else "/ops/"


def _row(actor: Holder, view: SavedView) -> ViewRow:
    return ViewRow(
        view,
        _base(actor) + view.suffix,
        ", ".join(_filter_words(name, value) for name, value in parse_qsl(view.query)),
        view.owner_id == actor.user_id,
        f"{_base(actor)}views/{view.id}" if may_change(actor, view) else "",
    )


def _filter_words(name: str, value: str) -> str:
    """A filter as text: `state: waiting`, `mine only`, `by cost, the highest first`."""
    if name == "sort":
        return f"by {value.removeprefix('-')}" + (", the highest first" if value.startswith("-") else "")
    if name in _FILTER_WORDS:
        return _FILTER_WORDS[name].format(value)
    return f"{name}: {value}"


_FILTER_WORDS = {
    "mine": "mine only",
    "q": "with “{}”",
    "external_ref": "ticket: {}",
    "free": "free for {}",
    "open": "{} open",
    "did": "did: {}",
    "view": "as a {}",
    "since": "from {}",
    "until": "to {}",
}


def view_menu(request: HttpRequest, actor: Holder, name: str) -> ListMenu:
    """The menu of a list with its present filters."""
    query = query_of(lists_of(actor)[name], request.GET.dict().items())
    rows = tuple(_row(actor, view) for view in views_of(actor, name))
    found = next((row for row in rows if row.view.query == query), None)
    menu = ViewMenu(name, query, rows, found, may_share(actor), f"{_base(actor)}views")
    return ListMenu("saved_views/menu.html", menu)


def view_pages(actor: Holder) -> Iterator[Page]:
    """The views as pages that the search finds."""
    for view in views_of(actor):
        label = view.page.label
        yield Page(view.name, view.suffix, "filter", f"{label} saved view", about=f"view of {label}")


def _shown(actor: Holder, now: datetime) -> dict[str, Any]:
    rows = [_row(actor, view) for view in views_of(actor)]
    if isinstance(actor, PlatformActor):
        rights = operator_rights(User.objects.get(id=actor.user_id), now)
        pages = [Page("", each.suffix, "") for each in lists_of(actor).values()]
        opened = {each.suffix for each in pages_open(pages, rights)}
        rows = [row for row in rows if row.view.page.suffix in opened]
    return {
        "mine": [row for row in rows if row.is_mine],
        "others": [row for row in rows if not row.is_mine],
        "lists": [(page.label, _base(actor) + page.suffix) for page in lists_of(actor).values()],
        "everybody": "each operator" if isinstance(actor, PlatformActor) else "your organisation",
    }


def _one(actor: Holder, now: datetime, view_id: UUID) -> dict[str, Any]:
    return {
        "row": _row(actor, view_one(actor, view_id)),
        "may_share": may_share(actor),
        "list_url": f"{_base(actor)}views",
    }


def _stored(actor: Holder, view_id: UUID) -> Mapping[str, Any]:
    view = view_one(actor, view_id)
    return {"name": view.name, "is_shared": view.is_shared}


def _lists(actor: Holder) -> list[tuple[str, str]]:
    return [(name, page.label) for name, page in lists_of(actor).items()]


def _save(base: str) -> Act:
    return Act(
        "save",
        view_save,
        "View {row.name} saved.",
        terms=ViewTerms,
        choices={"list": _lists},
        leads=lambda row, tenant: base.format(tenant) + row.suffix,
    )


def _acts(to: str) -> tuple[Act, ...]:
    return (
        Act("change", view_change, "View {row.name} saved.", terms=ViewChangeTerms, initial=_stored, to=to),
        Act("end", view_end, "View {row.name} ended.", to=to),
    )


LIST_MENUS.append(view_menu)
OWN_PAGES.append(view_pages)
urlpatterns = [
    form_page("views", "saved-views", "saved_views/page.html", _shown, _save("/t/{}/")),
    form_page("views/<uuid:view_id>", "saved-view", "saved_views/one.html", _one, *_acts("saved-views")),
    operator_form_page(
        "views",
        "ops-saved-views",
        "saved_views/page.html",
        _shown,
        _save("/ops/"),
        area=Area.OWN,
    ),
    operator_form_page(
        "views/<uuid:view_id>",
        "ops-saved-view",
        "saved_views/one.html",
        _one,
        *_acts("ops-saved-views"),
        area=Area.OWN,
    ),
]
