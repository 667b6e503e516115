"""What programs report about their runs."""

from tenants.platform.wall import no_right, protect, tenant_key

_COLUMNS = "step, of, unit, metrics, at, anchor_at, anchor_step, mark_at, mark_step, driver"
# People's programs write it through the web, and workers keep what programs say of their runs on nodes.
RIGHTS = (
    protect("allocation_progress", grants=f"SELECT, INSERT, UPDATE ({_COLUMNS})")
    + tenant_key("allocation_progress", "booking_id", "allocation_booking")
    + no_right("UPDATE, DELETE", "allocation_progress")
    + f"GRANT UPDATE ({_COLUMNS}) ON allocation_progress TO portal_system;\n"
)

SQL = RIGHTS
