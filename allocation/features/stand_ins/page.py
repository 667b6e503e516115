"""The page of stand-ins."""

from datetime import datetime
from typing import Any

from allocation.features.stand_ins.models import StandIn
from allocation.features.stand_ins.services import (
    StandInTerms,
    may_name,
    stand_in_end,
    stand_in_set,
    stand_ins_visible,
)
from tenants.access import Actor, acting_people, led_projects
from tenants.web.form_page import Act, form_page

MOST_SHOWN = 50


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    """Those in force or to come. Approvers name and end them."""
    rows = stand_ins_visible(actor).filter(StandIn.still_open(now))
    return {"rows": rows.order_by("starts", "id")[:MOST_SHOWN], "may_name": may_name(actor)}


def _projects(actor: Actor) -> list[tuple[str, str]]:
    return [("", "All that I decide"), *led_projects(actor)]


urlpatterns = [
    form_page(
        "approvals/stand-ins",
        "stand-ins",
        "stand_ins/page.html",
        _shown,
        Act(
            "name",
            stand_in_set,
            "{row.person.display_name} decides for you in that time.",
            terms=StandInTerms,
            choices={"person": acting_people, "project": _projects},
            is_dangerous=True,
        ),
        Act(
            "end",
            stand_in_end,
            key="stand_in",
            done="{row.person.display_name} does not decide for {row.approver.display_name} any more.",
        ),
    )
]
