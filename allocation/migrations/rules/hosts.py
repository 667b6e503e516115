"""What bookings use of hosts, data that starts fetch, caches of nodes, and spare cores."""

from tenants.platform.wall import no_right, open_table, protect, tenant_key, updates_only

_CACHE = "allocation_nodecache"
# Workers keep what nodes say; everybody may read which data sets there are.
CACHES = (
    open_table(_CACHE)
    + no_right("DELETE", _CACHE)
    + no_right("INSERT, UPDATE", _CACHE, roles="portal_ops")
    + updates_only({_CACHE: "sets, said_at"}, roles="portal_system")
)
_STAGING, _USE, _SPARE, _RAISED = (
    "allocation_staging", "allocation_hostuse", "allocation_sparecores", "allocation_raisedcores",
)
# Workers keep what nodes say, and raise cores; leads choose it for their projects.
RIGHTS = (
    protect(_STAGING, grants="SELECT")
    + protect(_USE, grants="SELECT")
    + protect(_SPARE, grants="SELECT, INSERT, UPDATE (is_on, changed_at, changed_by_id)")
    + protect(_RAISED, grants="SELECT")
    + tenant_key(_STAGING, "booking_id", "allocation_booking")
    + tenant_key(_USE, "booking_id", "allocation_booking")
    + tenant_key(_SPARE, "project_id", "tenants_project")
    + tenant_key(_RAISED, "booking_id", "allocation_booking")
    + no_right("DELETE", _STAGING, _USE, _SPARE, _RAISED)
    + no_right("INSERT, UPDATE", _STAGING, _USE, _SPARE, _RAISED, roles="portal_ops")
    + no_right("INSERT", _SPARE, roles="portal_system")
    + updates_only(
        {
            _STAGING: "nodes",
            _USE: "at, seconds, cpu_seconds, core_seconds, cores, spare, cpu, memory_mb, peak_memory_mb, read_mb,"
            " written_mb, received_mb, sent_mb, network_seconds",
            _SPARE: "",
            _RAISED: "most, run, raised_at, ended_at, evidence",
        },
        roles="portal_system",
    )
)

SQL = CACHES + RIGHTS
