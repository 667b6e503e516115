"""Pools, plans of capacity, machines of providers, what a provider cost in a month, and rules that rent."""

from tenants.platform.wall import no_right, protect, system_table, tenant_key, updates_only

_PLAN, _MACHINE, _SPEND = "allocation_capacityplan", "allocation_capacitymachine", "allocation_capacityspend"
# People make, approve and cancel plans; workers rent machines and pay them; operators give orphans back.
RIGHTS = (
    protect(_PLAN, grants="SELECT, INSERT, UPDATE (state, note, decided_by_id, ended)")
    + protect(_MACHINE, grants="SELECT")
    + system_table(_SPEND)
    + tenant_key(_PLAN, "project_id", "tenants_project")
    + tenant_key(_PLAN, "booking_id", "allocation_booking")
    + tenant_key(_PLAN, "made_with_id", "tenants_apitoken")
    + tenant_key(_MACHINE, "plan_id", _PLAN)
    + no_right("DELETE", _PLAN, _MACHINE, _SPEND)
    + no_right("INSERT", _MACHINE, _SPEND, roles="portal_ops")
    + no_right("UPDATE", _SPEND, roles="portal_ops")
    + updates_only({_PLAN: ""}, roles="portal_ops")
    + updates_only({_PLAN: "state, note, decided_by_id, ended, committed, charged"}, roles="portal_system")
    + updates_only({_MACHINE: "asked"}, roles="portal_ops")
    + updates_only(
        {
            _MACHINE: "provider_id, state, note, asked, due, came, ready, paid_until, leaves, released, cost",
            _SPEND: "committed, most",
        },
        roles="portal_system",
    )
    + """
CREATE TRIGGER change_of_pool AFTER UPDATE ON allocation_node
  FOR EACH ROW WHEN (OLD.pool IS DISTINCT FROM NEW.pool)
  EXECUTE FUNCTION allocation_change_hardware('node');
"""
)
_SPRINT = "allocation_sprintrule"
SPRINTS = (
    protect(
        _SPRINT,
        grants="SELECT, INSERT, UPDATE (mode, gpu_class_id, gpus, most_cost, issue, changed, changed_by_id)",
    )
    + tenant_key(_SPRINT, "project_id", "tenants_project")
    + no_right("DELETE", _SPRINT)
    + updates_only({_SPRINT: ""})
)
_BACKLOG = "allocation_backlogrule"
BACKLOGS = (
    protect(
        _BACKLOG,
        grants="SELECT, INSERT,"
        " UPDATE (mode, wait_minutes, gpus, hours, most_cost, note, changed, changed_by_id)",
    )
    + tenant_key(_BACKLOG, "project_id", "tenants_project")
    + no_right("DELETE", _BACKLOG)
    + updates_only({_BACKLOG: "note"}, roles="portal_system")
    + updates_only({_BACKLOG: ""}, roles="portal_ops")
)
_FORECAST = "allocation_forecastrule"
FORECASTS = (
    protect(
        _FORECAST,
        grants="SELECT, INSERT,"
        " UPDATE (mode, hours, days, gpus, most_cost, note, checked, changed, changed_by_id)",
    )
    + tenant_key(_FORECAST, "project_id", "tenants_project")
    + no_right("DELETE", _FORECAST)
    + updates_only({_FORECAST: "note, checked"}, roles="portal_system")
    + updates_only({_FORECAST: ""}, roles="portal_ops")
)

SQL = RIGHTS + SPRINTS + BACKLOGS + FORECASTS
