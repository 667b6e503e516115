"""What operators do with roles of operators, and sites on which they can do it."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from tenants.models import OperatorRole
from tests.api.builders import Site
from tests.builders import an_operator
from tests.roles import as_role
from tests.web.acts import Act


def role_asked(site: Site) -> dict[str, Any]:
    """A role that another operator has given, and a second one approves."""
    return _role_of_viewer(site, None)


def role_given(site: Site) -> dict[str, Any]:
    """A role of somebody else."""
    return _role_of_viewer(site, timezone.now())


def _role_of_viewer(site: Site, since: datetime | None) -> dict[str, Any]:
    author, now = an_operator("olga"), timezone.now()
    with as_role("portal_ops"):
        row = OperatorRole.objects.create(
            user=site.people["viewer"], role="support", created=now, created_by=author, since=since
        )
    return {"role": str(row.id), "role_id": str(row.id)}


_KIND = "operator_role"
_GIVE = Act("operator_role.given", _KIND, {"username": "mara", "role": "support"}, has_before=False)
_APPROVE = Act("operator_role.given", _KIND, made=role_asked, has_before=False)
_END = Act("operator_role.ended", _KIND, made=role_given, has_before=False)
ROLE_ACTS: dict[str, Act] = {
    "ops/roles give": _GIVE,
    "ops/roles approve": _APPROVE,
    "ops/roles end": _END,
    "post api/v1/operator-roles": _GIVE,
    "post api/v1/operator-roles/<uuid:role_id>/approve": _APPROVE,
    "post api/v1/operator-roles/<uuid:role_id>/end": _END,
}
