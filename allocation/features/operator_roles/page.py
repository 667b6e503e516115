"""The page of operators and their roles."""

from datetime import datetime
from typing import Any

from allocation.features.operator_roles.services import (
    OperatorRoleTerms,
    operator_role_approve,
    operator_role_end,
    operator_role_give,
    operator_roles,
)
from tenants.access import PlatformActor
from tenants.models import OperatorRole
from tenants.rules.operator_roles import ROLES, Area
from tenants.web.form_page import Act, operator_form_page

MOST_ENDED = 20


def _shown(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    rows = operator_roles()
    return {
        "rows": rows.filter(ended=None).order_by("user__username", "role"),
        "ended": rows.exclude(ended=None).order_by("-ended")[:MOST_ENDED],
        "kinds": ROLES.values(),
        "me": actor.user_id,
    }


def _given(row: OperatorRole) -> str:
    name, label = row.user.display_name, row.get_role_display()
    if row.since is None:
        return f"{name} gets the role {label} when another site operator has approved it."
    return f"{name} has the role {label}."


urlpatterns = [
    operator_form_page(
        "roles",
        "ops-roles",
        "operator_roles/page.html",
        _shown,
        Act(
            "give",
            operator_role_give,
            _given,
            terms=OperatorRoleTerms,
            choices={"role": lambda _: [(name, role.label) for name, role in ROLES.items()]},
        ),
        Act("approve", operator_role_approve, _given, key="role", noun="operator's role"),
        Act(
            "end",
            operator_role_end,
            "{row.user.display_name} does not have the role any more.",
            key="role",
            noun="operator's role",
        ),
        area=Area.ROLES,
    )
]
