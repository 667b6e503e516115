"""Workloads of bookings, advice that quotes have shown, and what projects let the portal choose."""

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

# Quotes and leads write them through the web; workers quote for Jira. Nobody deletes one.
RIGHTS = (
    protect("allocation_adviceshown", grants="SELECT, INSERT, UPDATE (shown, last_at)")
    + protect("allocation_diversion", grants="SELECT, INSERT, UPDATE (mode, since, changed_by_id)")
    + tenant_key("allocation_adviceshown", "project_id", "tenants_project")
    + tenant_key("allocation_diversion", "project_id", "tenants_project")
    + no_right("DELETE", "allocation_adviceshown", "allocation_diversion")
    + updates_only({"allocation_adviceshown": "shown, last_at", "allocation_diversion": ""})
)
# An index of the expression would not do: row-level security lets no function that is not leakproof be
# looked up before its own condition.
SAID = "coalesce(nullif(labels->>'workload', ''), nullif(ask->>'workload', ''))"


def slug(text: str) -> str:
    clean = f"trim(BOTH '-' FROM regexp_replace(lower({text}), '[^a-z0-9_]+', '-', 'g'))"
    return f"trim(BOTH '-' FROM left({clean}, 63))"


NAME = f"""coalesce(
  {slug(SAID)},
  CASE WHEN {slug("name")} !~ '^[0-9]*$' THEN
    CASE WHEN regexp_replace({slug("name")}, '(-v?[0-9]+)+$', '') ~ '^[0-9]+$' THEN ''
    ELSE regexp_replace({slug("name")}, '(-v?[0-9]+)+$', '') END
  ELSE '' END)"""
COLUMN = f"""
ALTER TABLE allocation_booking ADD COLUMN workload text GENERATED ALWAYS AS ({NAME}) STORED;
CREATE INDEX booking_by_workload ON allocation_booking (project_id, workload) WHERE state = 'ended';
"""

SQL = RIGHTS + COLUMN
