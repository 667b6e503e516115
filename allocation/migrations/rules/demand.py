"""What each hour had, and forecasts of demand. They name no tenant, so everybody may read them."""

from tenants.platform.wall import no_right, open_table

# One task writes them; hours are read again, forecasts are never changed.
RIGHTS = (
    open_table("allocation_demandhour")
    + open_table("allocation_demandforecast")
    + no_right("UPDATE", "allocation_demandforecast")
    + no_right("DELETE", "allocation_demandhour")
    + no_right("INSERT, UPDATE, DELETE", "allocation_demandhour", "allocation_demandforecast", roles="portal_ops")
)

SQL = RIGHTS
