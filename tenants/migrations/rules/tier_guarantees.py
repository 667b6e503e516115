"""Parts of guarantees for some tiers: admins and operators set them."""

from tenants.platform.reference import reference_of_tenants
from tenants.platform.wall import no_right, protect, updates_only

_TABLE = "tenants_tierguarantee"
RIGHTS = (
    protect(_TABLE)
    + no_right("UPDATE, DELETE", _TABLE, roles="portal_system")
    + updates_only({_TABLE: "units, tiers, changed, changed_by_id"}, roles="portal_ops")
    + reference_of_tenants(_TABLE)
)

SQL = RIGHTS
