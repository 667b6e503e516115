"""REST of saved views: of members of an organisation, and of operators."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from tenants.access import PlatformActor
from tenants.api.endpoints import Endpoint, Endpoints
from tenants.features.saved_views.models import SavedView
from tenants.features.saved_views.services import (
    Holder,
    ViewChangeTerms,
    ViewTerms,
    view_change,
    view_end,
    view_save,
    views_of,
)
from tenants.models import Scope
from tenants.platform.rest.terms import Username
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.ADMIN)
ops = Endpoints(Scope.ADMIN, for_operators=True, area=Area.OWN)


class SavedViewOut(serializers.Serializer[Any]):
    """Filters of a list that are kept under a name."""

    id = serializers.UUIDField()
    list = serializers.CharField(
        help_text="`bookings`, `fleet`, `log`, `timeline`, or `decisions` of operators."
    )
    name = serializers.CharField()
    query = serializers.CharField(help_text="As in the address of the list: `state=waiting&mine=1`.")
    is_shared = serializers.BooleanField(help_text="Everybody has it.")
    owner = Username()
    created = serializers.DateTimeField()


def _holder(call: Endpoint) -> Holder:
    if call.for_operators:
        return PlatformActor.of(call.user, call.caller.token_id)
    return call.actor


@rest.list("views", "List saved views", SavedViewOut, order=("created", "id"))
@ops.list(
    "platform-views",
    "List saved views (operators)",
    SavedViewOut,
    order=("created", "id"),
    operation="list_platform_views",
)
def list_views(call: Endpoint) -> QuerySet[SavedView]:
    """Returns yours, and those that everybody has."""
    return views_of(_holder(call))


@rest.put("views", "Save a view of a list", SavedViewOut, terms=ViewTerms)
@ops.put(
    "platform-views",
    "Save a view of a list (operators)",
    SavedViewOut,
    terms=ViewTerms,
    operation="save_platform_view",
)
def save_view(call: Endpoint, terms: ViewTerms) -> SavedView:
    """Keeps filters of a list under a name. One of yours with this name gets the new filters."""
    return view_save(actor=_holder(call), terms=terms, now=call.now)


@rest.put("views/<uuid:view_id>", "Rename or share a saved view", SavedViewOut, terms=ViewChangeTerms)
@ops.put(
    "platform-views/<uuid:view_id>",
    "Rename or share a saved view (operators)",
    SavedViewOut,
    terms=ViewChangeTerms,
    operation="set_platform_view",
)
def set_view(call: Endpoint, terms: ViewChangeTerms, view_id: UUID) -> SavedView:
    """Renames a view, and gives it to everybody or to its owner only."""
    return view_change(actor=_holder(call), view_id=view_id, terms=terms, now=call.now)


@rest.delete("views/<uuid:view_id>", "End a saved view")
@ops.delete("platform-views/<uuid:view_id>", "End a saved view (operators)", operation="end_platform_view")
def end_view(call: Endpoint, view_id: UUID) -> None:
    """Removes the view; the list stays as it is."""
    view_end(actor=_holder(call), view_id=view_id, now=call.now)


urlpatterns = [*rest.urls, *ops.urls]
