"""Saved views of lists: those of an organisation behind its wall, those of operators for them only."""

from tenants.platform.wall import no_right, protect, updates_only

VIEWS = "tenants_savedview"
CHANGES = {VIEWS: "name, query, is_shared"}
# Workers have nothing to do with them.
RIGHTS = (
    protect(VIEWS, grants="SELECT, INSERT, DELETE")
    + f"GRANT UPDATE ({CHANGES[VIEWS]}) ON {VIEWS} TO portal_web;\n"
    + updates_only(CHANGES, "portal_ops")
    + no_right("INSERT, UPDATE, DELETE", VIEWS, roles="portal_system")
)

SQL = RIGHTS
