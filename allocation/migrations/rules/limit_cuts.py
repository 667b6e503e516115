"""Cuts of limits: what is kept above them, and the pauses that they ask for."""

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_CUT, _KEPT, _PAUSE = "allocation_limitcut", "allocation_keptbooking", "allocation_cutpause"
_SET = "answer, limit_units, cap_gpu_hours, cap_days, cap_carries, changed, changed_by_id, ended, outcome"
# Who sets a limit cuts it; workers pause what is above it, and end what is met.
RIGHTS = (
    protect(_CUT, grants=f"SELECT, INSERT, UPDATE ({_SET})")
    + protect(_KEPT, grants="SELECT, INSERT")
    + protect(_PAUSE, grants="SELECT")
    + tenant_key(_CUT, "project_id", "tenants_project")
    + tenant_key(_CUT, "lab_id", "tenants_lab")
    + tenant_key(_KEPT, "cut_id", _CUT)
    + tenant_key(_KEPT, "booking_id", "allocation_booking")
    + tenant_key(_PAUSE, "cut_id", _CUT)
    + tenant_key(_PAUSE, "pause_id", "allocation_pause")
    + no_right("DELETE", _CUT, _KEPT, _PAUSE)
    + no_right("INSERT", _CUT, _KEPT, roles="portal_system")
    + no_right("INSERT, UPDATE", _PAUSE, roles="portal_ops")
    + updates_only({_CUT: _SET, _KEPT: ""}, roles="portal_ops")
    + updates_only({_CUT: "ended, outcome, changed_by_id", _KEPT: "", _PAUSE: "released"}, roles="portal_system")
)

SQL = RIGHTS
