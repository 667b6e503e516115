"""Sign-on with a tenant's provider, and its directory of people."""

from tenants.platform.wall import protect, tenant_key

# The operators' process alone reads and writes what signs people in. A web process only shows who
# is connected.
SQL = (
    protect("tenants_signonprovider", grants="SELECT (tenant_id, is_on)")
    + protect("tenants_signongroup", grants="")
    + tenant_key("tenants_signongroup", "project_id", "tenants_project")
    + protect("tenants_signonidentity", grants="SELECT (tenant_id, user_id)")
    + protect("tenants_signonattempt", grants="")
    + protect("tenants_directorytoken", grants="")
    + protect("tenants_directoryperson", grants="")
    # The operators' process alone reads and writes what gives people roles.
    + protect("tenants_directorygroup", grants="")
)
