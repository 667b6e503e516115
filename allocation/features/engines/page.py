"""Operators' pages of engines: all of them, and one with its hosts."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from allocation.features.engines.services import (
    EngineTerms,
    EngineView,
    HostsTerms,
    access_revoke,
    engine_enrolment,
    engine_view,
    engines_view,
    hosts_approve,
    keys_rotate,
)
from allocation.models import EngineAgent, Node
from allocation.points import NODE_CARDS, BookingCard
from tenants.access import PlatformActor
from tenants.platform.forms.confirm import Confirmation
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, operator_form_page
from tenants.web.parts import counted


def _all(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    return {"engines": engines_view(now), "portal": settings.PUBLIC_URL}


def _one(actor: PlatformActor, now: datetime, name: str) -> dict[str, Any]:
    engine = engine_view(name, now)
    hosts = sorted(
        engine.hosts, key=lambda each: (each.state != "waiting", each.state != "refused", each.name)
    )
    return {"engine": engine, "hosts": hosts}


def _revoke_question(actor: PlatformActor, name: str) -> Confirmation:
    hosts = Node.objects.filter(engine_agent=name).count()
    return Confirmation(
        title=f"Revoke the access of the engine {name}?",
        lost=(
            "Its connections are closed, and its keys and Redis account are revoked.",
            f"{counted(hosts, 'node')} of it can't be planned on.",
            "What runs there continues to its end and can't be stopped, paused or extended until you enrol"
            " the engine again.",
            "This can't be undone. To bring it back, enrol it again and approve its hosts.",
        ),
        button=f"Revoke access of {name}",
        back=f"/ops/engines/{name}",
        keep="Keep its access",
    )


def _approved(engine: EngineView) -> str:
    return f"{counted(engine.served, 'host')} of {engine.name} now in the portal."


def engine_card(node_id: UUID, now: datetime) -> BookingCard | None:
    """Whose identity serves a node, for operators."""
    engine = EngineAgent.objects.filter(nodes=node_id).first()
    return None if engine is None else BookingCard("engines/card.html", {"engine": engine})


NODE_CARDS.append(engine_card)
urlpatterns = [
    operator_form_page(
        "engines",
        "ops-engines",
        "engines/page.html",
        _all,
        Act("enrol", engine_enrolment, "Token created.", terms=EngineTerms, is_shown_once=True),
        area=Area.FLEET,
    ),
    operator_form_page(
        "engines/<slug:name>",
        "ops-engine",
        "engines/engine.html",
        _one,
        Act("approve", hosts_approve, _approved, terms=HostsTerms),
        Act("rotate", keys_rotate, "New keys issued. Old ones expire when the engine uses the new ones."),
        Act("revoke", access_revoke, "Access of {row.name} revoked.", asks=_revoke_question),
        area=Area.FLEET,
    ),
]
