"""Saving, changing and ending views of lists."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Lower

from tenants.access import Actor, PlatformActor, require_in_reach
from tenants.audit import audit_record, platform_record
from tenants.features.saved_views.models import LONGEST_NAME, SavedView
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms
from tenants.rules.lists import LISTS, LONGEST_QUERY, OPERATOR_LISTS, ListPage, query_read
from tenants.services.input_values import name_read
from tenants.words import refusal_text

MOST_VIEWS = 20
"""Views that a person has of one list; as many of one list are shared in an organisation."""
Holder = Actor | PlatformActor


@terms
class ViewTerms:
    """Filters of a list, and the name under which they are kept."""

    list: Literal["bookings", "decisions", "fleet", "log", "timeline"] = term("List")
    name: str = term("Name", "Such as: my team’s running bookings.", max_length=LONGEST_NAME)
    query: str = term(
        "Filters",
        "As they stand in the address of the list.",
        says="As in the address of the list, such as `state=waiting&mine=1`; other parameters are refused.",
        max_length=LONGEST_QUERY,
    )
    is_shared: bool = term(
        "Everybody has it",
        says="Everybody in the organisation has it; with `platform-views`, each operator. For admins.",
        default=False,
    )


@terms
class ViewChangeTerms:
    """The name of a view, and who has it."""

    name: str = term("Name", max_length=LONGEST_NAME)
    is_shared: bool = term("Everybody has it", default=False)


def views_of(actor: Holder, of_list: str = "") -> QuerySet[SavedView]:
    """Returns the actor's views, and those that others share; of one list, or of all."""
    rows = SavedView.objects.filter(tenant=actor.tenant_id).select_related("owner")
    if of_list:
        rows = rows.filter(list=of_list)
    return rows.filter(Q(owner=actor.user_id) | Q(is_shared=True))


def may_share(actor: Holder) -> bool:
    """Whether the actor may give a view to everybody: admins, and operators among themselves."""
    return isinstance(actor, PlatformActor) or actor.is_tenant_admin


def may_change(actor: Holder, view: SavedView) -> bool:
    """Whether the actor may rename or end it: their own, and admins what is shared."""
    return view.owner_id == actor.user_id or (view.is_shared and may_share(actor))


@transaction.atomic
def view_save(*, actor: Holder, terms: ViewTerms, now: datetime) -> SavedView:
    """Keeps the filters under the name. A view of the actor's that has this name gets the new filters.

    Raises:
        Refused: `not_allowed`, `not_found`, `bad_name`, `bad_view` or `too_many_views`.
    """
    _require_rights(actor, is_shared=terms.is_shared)
    query = _query(_list(actor, terms.list), terms.query)
    name = name_read(terms.name, longest=LONGEST_NAME)
    _one_at_a_time(actor)
    mine = SavedView.objects.filter(tenant=actor.tenant_id, owner=actor.user_id, list=terms.list)
    view: SavedView | None = _named(mine, name).first()
    before = _facts(view) if view is not None else {}
    if view is None:
        if mine.count() >= MOST_VIEWS:
            raise Refused("too_many_views", refusal_text("too_many_views", most=MOST_VIEWS))
        view = SavedView(tenant_id=actor.tenant_id, owner_id=actor.user_id, list=terms.list, created=now)
    _shared_set(view, is_shared=terms.is_shared)
    view.name, view.query = name, query
    view.save(update_fields=None if view._state.adding else ["name", "query", "is_shared"])
    _record(actor, "view.saved", view, now, before, _facts(view))
    return view


@transaction.atomic
def view_change(*, actor: Holder, view_id: UUID, terms: ViewChangeTerms, now: datetime) -> SavedView:
    """Renames a view, and gives it to everybody or to its owner only.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_name`, `view_name_taken` or `too_many_views`.
    """
    _require_rights(actor, is_shared=terms.is_shared)
    _one_at_a_time(actor)
    view = view_one(actor, view_id)
    name, before = name_read(terms.name, longest=LONGEST_NAME), _facts(view)
    others = SavedView.objects.filter(tenant=view.tenant_id, owner=view.owner_id, list=view.list)
    if _named(others, name).exclude(id=view.id).exists():
        raise invalid("view_name_taken", refusal_text("view_name_taken", name=name), "name")
    _shared_set(view, is_shared=terms.is_shared)
    view.name = name
    view.save(update_fields=["name", "is_shared"])
    _record(actor, "view.changed", view, now, before, _facts(view))
    return view


@transaction.atomic
def view_end(*, actor: Holder, view_id: UUID, now: datetime) -> SavedView:
    """Removes a view. The list itself stays as it is. Raises Refused: `not_found` or `not_allowed`."""
    _require_rights(actor, is_shared=False)
    _one_at_a_time(actor)
    view = view_one(actor, view_id)
    _record(actor, "view.ended", view, now, _facts(view), {})
    SavedView.objects.filter(id=view.id).delete()
    return view


def view_one(actor: Holder, view_id: UUID) -> SavedView:
    """Returns a view that the actor may change. Raises Refused: `not_found` or `not_allowed`."""
    view = views_of(actor).filter(id=view_id).first()
    if view is None:
        raise missing("saved view")
    if not may_change(actor, view):
        raise denied(refusal_text("view_of_another"))
    return view


def _named(rows: QuerySet[SavedView], name: str) -> QuerySet[SavedView]:
    """Those with the name in any case, by the same function of the database as its constraint."""
    return rows.alias(lower=Lower("name")).filter(lower=Lower(Value(name)))


def lists_of(actor: Holder) -> dict[str, ListPage]:
    """Returns the lists of which the actor can have views."""
    return LISTS if isinstance(actor, Actor) else OPERATOR_LISTS


def _list(actor: Holder, name: str) -> ListPage:
    page = lists_of(actor).get(name)
    if page is None:
        raise missing("list", "list")
    return page


def _query(page: ListPage, text: str) -> str:
    """The filters as they are stored. Raises Refused `bad_view`."""
    try:
        query, unknown = query_read(page, text)
    except ValueError:
        query, unknown = "", []
    if unknown:
        said = refusal_text("view_parameters", unknown=unknown[0][:40], names=", ".join(page.parameters))
        raise invalid("bad_view", said, "query")
    if not query:
        raise invalid("bad_view", refusal_text("view_empty"), "query")
    if len(query) > LONGEST_QUERY or "%00" in query:
        raise invalid("bad_view", refusal_text("view_long", most=LONGEST_QUERY), "query")
    return query


def _require_rights(actor: Holder, *, is_shared: bool) -> None:
    """Raises Refused `not_allowed`."""
    if isinstance(actor, Actor):
        require_in_reach(actor, None)
    if is_shared and not may_share(actor):
        raise denied(refusal_text("view_sharers"))


def _one_at_a_time(actor: Holder) -> None:
    """Serialises changes of an organisation's views until the transaction ends, so that counts hold."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"saved_views:{actor.tenant_id}"]
        )


def _shared_set(view: SavedView, *, is_shared: bool) -> None:
    if is_shared and not view.is_shared:
        shared = SavedView.objects.filter(tenant=view.tenant_id, list=view.list, is_shared=True)
        if shared.count() >= MOST_VIEWS:
            raise Refused("too_many_views", refusal_text("too_many_shared_views", most=MOST_VIEWS))
    view.is_shared = is_shared


def _facts(view: SavedView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in ("name", "list", "query", "is_shared")}


def _record(
    actor: Holder,
    action: str,
    view: SavedView,
    now: datetime,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    """Logs what operators do, and what others of the organisation see. Views of one's own are not logged."""
    if before == after:
        return
    if isinstance(actor, PlatformActor):
        platform_record(actor.user_id, action, ("view", view.id), now, before=before, after=after)
    elif before.get("is_shared") or after.get("is_shared"):
        audit_record(
            tenant_id=actor.tenant_id,
            actor_id=actor.user_id,
            action=action,
            target=("view", view.id),
            now=now,
            detail={"before": before, "after": after},
        )
