"""What figures are divided by, as SQL for the statements that read them."""

from typing import Any

from django.db import connection

# A mixed booking waits and is paused as its first class.
OF_PLACE = {
    "class": "g.gpu_class_id",
    "tenant": "t.slug",
    "project": "p.slug",
    "person": "u.username",
    "tier": "b.tier_id",
}
OF_BOOKING = OF_PLACE | {"class": "b.planned_class"}
SPEND_BY = {"class": "gpu_class", "project": "project", "person": "person", "tier": "tier"}
NOUNS = tuple(OF_PLACE)
WHO = """
JOIN allocation_booking b ON b.id = {booking}
JOIN tenants_project p ON p.id = b.project_id
JOIN tenants_user u ON u.id = b.owner_id
JOIN tenants_tenant t ON t.id = b.tenant_id
"""
WHOSE = """(%(tenant)s::uuid IS NULL OR b.tenant_id = %(tenant)s)
  AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))"""
RUNS = "a.state IN ('active', 'releasing', 'ended') AND a.period && w.span"


def rows_read(statement: str, facts: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, facts)
        return list(cursor.fetchall())
