"""Connections to Jira. What belongs to one goes with it."""

from tenants.platform.wall import protect, tenant_key

SQL = (
    protect("allocation_jiraconnection")
    + tenant_key("allocation_jiraconnection", "receiver_id", "tenants_webhook", cascade=True)
    + protect("allocation_jiraproject")
    + tenant_key(
        "allocation_jiraproject", "connection_id", "allocation_jiraconnection", cascade=True
    )
    + tenant_key("allocation_jiraproject", "project_id", "tenants_project")
    + tenant_key("allocation_jiraproject", "made_with_id", "tenants_apitoken")
    + protect("allocation_jiramessage")
    + tenant_key(
        "allocation_jiramessage", "connection_id", "allocation_jiraconnection", cascade=True
    )
    + tenant_key("allocation_jiramessage", "booking_id", "allocation_booking")
)
