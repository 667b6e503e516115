"""Trials of the policy on the past, its shadows, and hours and slices that it keeps."""

from tenants.platform.wall import no_right, open_table, protect, system_table, updates_only

_TRIAL, _PART = "allocation_policytrial", "allocation_policytrialpart"
# Operators ask for trials and cancel them; workers play them and keep the plays.
TRIALS = (
    system_table(_TRIAL)
    + system_table(_PART)
    + no_right("DELETE", _TRIAL, _PART)
    + updates_only({_PART: ""})
    + updates_only(
        {
            _TRIAL: "state, attempts, alive_at, permille, finished_at, took_ms, note, report",
        },
        roles="portal_system",
    )
    + updates_only({_TRIAL: "state, finished_at"}, roles="portal_ops")
    + no_right("INSERT", _PART, roles="portal_ops")
)
_TENANT = "allocation_policytrialtenant"
# The process that plays trials writes it, once.
TENANTS = (
    protect(_TENANT, grants="SELECT")
    + no_right("UPDATE, DELETE", _TENANT, roles="portal_system")
    + no_right("INSERT, UPDATE, DELETE", _TENANT, roles="portal_ops")
)
_SHADOW, _DIFFERENCE = "allocation_policyshadow", "allocation_policyshadowdifference"
# Operators begin and end shadows; workers decide and keep what differs.
SHADOWS = (
    system_table(_SHADOW)
    + system_table(_DIFFERENCE)
    + no_right("DELETE", _SHADOW, _DIFFERENCE)
    + no_right("INSERT", _DIFFERENCE, roles="portal_ops")
    + updates_only({_DIFFERENCE: ""}, roles="portal_ops")
    + updates_only({_SHADOW: "ended_at"}, roles="portal_ops")
    + updates_only(
        {_DIFFERENCE: "times, last_at, decision, active_starts, starts, rule"}, roles="portal_system"
    )
)
_HOURS = "allocation_headroomhour"
HEADROOM = open_table(_HOURS) + no_right("DELETE", _HOURS) + no_right("INSERT, UPDATE, DELETE", _HOURS, roles="portal_ops")
_SLICES = "allocation_sliceahead"
SLICES = system_table(_SLICES) + no_right("DELETE", _SLICES) + no_right("INSERT, UPDATE, DELETE", _SLICES, roles="portal_ops")

SQL = TRIALS + TENANTS + SHADOWS + HEADROOM + SLICES
