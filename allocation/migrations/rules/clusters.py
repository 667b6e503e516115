"""Clusters that other systems run: their jobs, accounts and GPU types, as their records say.

An organisation reads its own accounts and their jobs. Nothing is ever removed.
"""

from tenants.platform.wall import no_right, protect, system_table, tenant_key, updates_only

TABLES = ("allocation_observedcluster", "allocation_observedaccount", "allocation_observedtype")
JOBS = "allocation_observedjob"
# All but what a job is known by.
CHANGING = (
    "account, tenant_id, project_id, gpu_class_id, gpus, person, partition, state, nodes, eligible, started,"
    " ended, limit_seconds, is_booking, read_at"
)
# Records are sent by operators; a command on the portal's host has the system's role. Only operators say
# whose an account is, and which class a type is.
RIGHTS = (
    system_table("allocation_observedcluster")
    + system_table("allocation_observedtype")
    + protect("allocation_observedaccount", grants="")
    + protect(JOBS, grants="SELECT")
    + tenant_key("allocation_observedaccount", "project_id", "tenants_project")
    + tenant_key(JOBS, "project_id", "tenants_project")
    + no_right("DELETE", *TABLES, JOBS)
    + updates_only({"allocation_observedcluster": "read_at", JOBS: CHANGING})
    + updates_only(
        {"allocation_observedaccount": "", "allocation_observedtype": ""}, roles="portal_system"
    )
    + updates_only(
        {"allocation_observedaccount": "tenant_id, project_id", "allocation_observedtype": "gpu_class_id"},
        roles="portal_ops",
    )
)

SQL = RIGHTS
