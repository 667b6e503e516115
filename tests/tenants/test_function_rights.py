"""Which roles may call the functions of the database: what one process may do, workers may, too."""

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db

WORKERS = ("portal_system", "portal_ops")
ONLY_SYSTEM = {
    "allocation_policy_prices",
    "portal_address_is_taken",
    "portal_has_second_factor",
    "portal_invitation_offer",
    "portal_invitations",
    "portal_memberships",
}
"""What a web process must not ask: they take a name or a number that could be enumerated, or are a part of
what guards workers."""
NOBODY = {
    "billing_recount",
    "portal_holder",
    "portal_person",
    "portal_sign_in_write",
    "portal_site_operators",
}
"""Parts of other functions, which run as the owner."""

ONLY_WEB = {
    ("allocation_statementexport", "portal_ops", "INSERT"),
    ("allocation_bookingscript", "portal_ops", "SELECT"),
    *(
        (f"allocation_{name}", role, "INSERT")
        for name in ("notebook", "notebookentry", "handover", "pauseappeal", "sparecores", "bookingscript")
        for role in WORKERS
    ),
    *(
        (name, "portal_system", "INSERT")
        for name in ("allocation_keptbooking", "allocation_limitcut", "tenants_apitoken", "tenants_savedview")
    ),
}
"""Members have files of statements made, start notebooks, hand over, contest pauses, choose cores; operators
and workers do none of this. Members send scripts, of which operators read only how they ended. Workers cut no
limits, make no tokens and save no views."""
BOOKING = [
    "allocation_allocation",
    "allocation_approval",
    "allocation_booking",
    "allocation_bookingarray",
    "allocation_bookingchange",
    "allocation_counteroffer",
    "allocation_override",
    "allocation_pause",
    "allocation_series",
    "allocation_waitentry",
    "allocation_waitoffer",
    "billing_account",
    "billing_budget",
    "tenants_tenant",
]
"""Tables that change when somebody books, changes or cancels, whoever does."""


def callers() -> dict[str, tuple[bool, ...]]:
    """Functions that no trigger calls, and whether the web, workers and operators may."""
    with connection.cursor() as cursor:
        cursor.execute("""
            SELECT proname, array_agg(has_function_privilege(role, p.oid, 'EXECUTE') ORDER BY at)
            FROM pg_proc p, unnest(ARRAY['portal_web', 'portal_system', 'portal_ops'])
              WITH ORDINALITY AS roles (role, at)
            WHERE pronamespace = 'public'::regnamespace AND prorettype <> 'trigger'::regtype
              AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
            GROUP BY p.oid, proname""")
        return {name: tuple(may) for name, may in cursor.fetchall()}


def test_whatever_the_web_may_call_workers_and_operators_may_call() -> None:
    found = callers()
    assert found["billing_rungs_unreached"] == (True, True, True)
    for name, may in found.items():
        expected = (False, False, False) if name in NOBODY else (name not in ONLY_SYSTEM, True, True)
        assert may == expected, name
    assert found.keys() >= NOBODY | ONLY_SYSTEM


def test_whatever_the_web_may_read_or_add_workers_and_operators_may() -> None:
    """Workers act for people: for Jira, for directories, and on waiting lists."""
    with connection.cursor() as cursor:
        cursor.execute("""
            SELECT c.relname, role, verb FROM pg_class c, pg_attribute a,
              unnest(ARRAY['portal_system', 'portal_ops']) AS role,
              unnest(ARRAY['SELECT', 'INSERT']) AS verb
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
              AND a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              AND has_column_privilege('portal_web', c.oid, a.attname, verb)
              AND NOT has_column_privilege(role, c.oid, a.attname, verb)""")
        assert set(cursor.fetchall()) == ONLY_WEB


def test_a_booking_is_written_by_workers_as_by_the_web() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT c.relname, role, a.attname FROM pg_class c, pg_attribute a,
              unnest(ARRAY['portal_system', 'portal_ops']) AS role
            WHERE c.oid = ANY (%s::regclass[]::oid[]) AND a.attrelid = c.oid AND a.attnum > 0
              AND NOT a.attisdropped
              AND has_column_privilege('portal_web', c.oid, a.attname, 'UPDATE')
              AND NOT has_column_privilege(role, c.oid, a.attname, 'UPDATE')""",
            [BOOKING],
        )
        assert cursor.fetchall() == []
