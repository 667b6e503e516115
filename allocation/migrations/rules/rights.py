"""Rights of the roles that tenants' isolation does not bind: no more than their code uses.

`portal_system` runs workers, the solver, the reader and the sender; `portal_ops` serves operators.
A row that is locked (`SELECT … FOR UPDATE`) needs a right to change one of its columns.
"""

from tenants.platform.wall import no_right, updates_only

SYSTEM, OPS = "portal_system", "portal_ops"

# What nobody deletes. Archives are written as the owner.
KEPT = (
    "allocation_acceptance", "allocation_allocation", "allocation_approval",
    "allocation_approvalact", "allocation_approvalrule", "allocation_backup", "allocation_booking",
    "allocation_bookingarray", "allocation_bookingchange", "allocation_bookingevent",
    "allocation_calendarfeed", "allocation_compactionorder", "allocation_counteroffer",
    "allocation_decisionreplay", "allocation_dependency", "allocation_enrolmenttoken",
    "allocation_eventcounter", "allocation_gpu", "allocation_gpuevent", "allocation_jiraconnection",
    "allocation_jiraproject", "allocation_machineclock", "allocation_maintenance",
    "allocation_movedstart", "allocation_node", "allocation_nodeinventory", "allocation_occupancy",
    "allocation_override", "allocation_pause", "allocation_pausecause", "allocation_portalmode",
    "allocation_rack", "allocation_reportsubscription", "allocation_requirement",
    "allocation_series", "allocation_solverstate", "allocation_spendvariance", "allocation_standin",
    "allocation_statementdispute", "allocation_stop", "allocation_tierversion",
    "allocation_waitentry", "allocation_waitoffer",
)
KEPT_BY_SYSTEM = (
    "allocation_gpumodel", "allocation_migplacement", "allocation_nodeexamination",
    "allocation_workspeed",
)
KEPT_BY_OPS = (
    "allocation_gpusample", "allocation_gpuuse", "allocation_jiramessage", "allocation_queueplace",
    "allocation_statementexport",
)
DELETES = (
    no_right("DELETE", *KEPT)
    + no_right("DELETE", *KEPT_BY_SYSTEM, roles=SYSTEM)
    + no_right("DELETE", *KEPT_BY_OPS, roles=OPS)
)

# Columns that change after a row was made. What is not listed here changes in most of its columns.
UPDATES = updates_only(
    {
        "allocation_approval": "covers, decide_by, decided, decided_by_id, digest, reason, state,"
        " step, steps",
        "allocation_approvalact": "",
        "allocation_approvalrule": "retired, retired_by_id",
        "allocation_bookingevent": "",
        "allocation_bookinglabel": "",
        # People make and revoke their calendars and limit their tiers in web processes only.
        "allocation_calendarfeed": "",
        "allocation_tierversion": "",
        "allocation_counteroffer": "answered, state",
        "allocation_dependency": "",
        "allocation_enrolmenttoken": "used_at",
        "allocation_eventcounter": "count",
        "allocation_gpuevent": "until",
        "allocation_gpusample": "",
        "allocation_machineclock": "clock_offset, jump",
        "allocation_jiraproject": "",
        "allocation_migplacement": "",
        "allocation_movedstart": "",
        "allocation_nodeexamination": "checks, seq, at",
        "allocation_nodeinventory": "document, at",
        "allocation_override": "amount, answer, booking_id, decided, decided_by_id, ended, is_once,"
        " starts, state, until, warned",
        "allocation_pausecause": "handed_over_at",
        "allocation_portalmode": "closed_at, ended_at",
        "allocation_rack": "",
        "allocation_requirement": "ended",
        "allocation_series": "failed, first, keeps_end, rule, skipped",
        "allocation_spendvariance": "",
        "allocation_standin": "ended, ended_by_id",
        "allocation_stop": "ended_at",
        "allocation_waitentry": "any_of, cost, expired_count, is_met, quiet_until, slot, until,"
        " windows",
        "allocation_waitoffer": "decided_at, decided_by_id, state",
        "allocation_workspeed": "",
    }
)
UPDATES_OF_SYSTEM = updates_only(
    {
        "allocation_acceptance": "warned_days",
        "allocation_backup": "checked_at",
        "allocation_compactionorder": "decided_at, decision_id, declined",
        "allocation_decisionreplay": "started_at, attempts, finished_at, outcome, note, comparison,"
        " snapshot_sha256, plan_sha256, software, took_ms",
        "allocation_gpumodel": "compute_slices, memory_slots",
        # The worker locks the connection whose message it handles.
        "allocation_jiraconnection": "flavour",
        "allocation_jiramessage": "answer, booking_id, state",
        "allocation_queueplace": "key",
        "allocation_reportsubscription": "due",
        "allocation_statementdispute": "",
        "allocation_statementexport": "lines, lines_done, attempts, claimed_until, finished_at,"
        " name, size, content",
    },
    SYSTEM,
)
UPDATES_OF_OPS = updates_only(
    {
        "allocation_jiraconnection": "",
        "allocation_jiramessage": "",
        "allocation_reportsubscription": "",
        "allocation_statementdispute": "answer, answered_at, answered_by_id, state",
    },
    OPS,
)
# The solver, its readers and the night's work write these.
NOT_OF_OPS = no_right(
    "INSERT, UPDATE", "allocation_backup", "allocation_decision", "allocation_decisionpiece",
    "allocation_gpusample", "allocation_gpuuse", "allocation_movedstart", "allocation_queueplace",
    "allocation_spendvariance", "allocation_statementexport", roles=OPS,
) + no_right(
    "UPDATE", "allocation_acceptance", "allocation_compactionorder", "allocation_decisionreplay",
    roles=OPS,
)

SQL = DELETES + UPDATES + UPDATES_OF_SYSTEM + UPDATES_OF_OPS + NOT_OF_OPS
