"""What operators can do with views that they save, and a site with one."""

from typing import Any

from django.utils import timezone

from tenants.access import PlatformActor
from tenants.features.saved_views.services import ViewTerms, view_save
from tenants.platform.wall import operator_tx
from tests.api.builders import Site
from tests.web.acts import Act

_VIEW = {"list": "bookings", "name": "Waits", "query": "state=waiting", "is_shared": True}
_CHANGE = {"name": "Long waits", "is_shared": True}


def with_view(site: Site) -> dict[str, Any]:
    """A view that an operator has saved."""
    actor = PlatformActor(site.people["operator"].pk, "Otto")
    with operator_tx():
        view = view_save(actor=actor, terms=ViewTerms(**_VIEW), now=timezone.now())  # type: ignore[arg-type]
    return {"view_id": str(view.id)}


_ONE, _REST = "ops/views/<uuid:view_id>", "api/v1/platform-views"
_CHANGED = Act("view.changed", "view", _CHANGE, with_view)
_ENDED = Act("view.ended", "view", {}, with_view, has_after=False)

VIEW_ACTS: dict[str, Act] = {
    "ops/views save": Act("view.saved", "view", _VIEW | {"name": "More"}, has_before=False),
    f"{_ONE} change": _CHANGED,
    f"{_ONE} end": _ENDED,
    f"put {_REST}": Act("view.saved", "view", _VIEW | {"name": "More"}, has_before=False),
    f"put {_REST}/<uuid:view_id>": _CHANGED,
    f"delete {_REST}/<uuid:view_id>": _ENDED,
}
