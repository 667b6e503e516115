"""The policy hook of each tenant, its failures and the log of its calls."""

from tenants.platform.reference import reference_of_tenants
from tenants.platform.wall import protect, tenant_key

# Web processes keep the hook in memory; its failures change often, so they are in a table apart.
SQL = (
    protect("tenants_policyhook")
    + reference_of_tenants("tenants_policyhook")
    + protect("tenants_policyhookhealth")
    + tenant_key("tenants_policyhookhealth", "hook_id", "tenants_policyhook")
    + protect("tenants_policyhookcall", grants="SELECT, INSERT, DELETE")
    + tenant_key("tenants_policyhookcall", "hook_id", "tenants_policyhook")
)
