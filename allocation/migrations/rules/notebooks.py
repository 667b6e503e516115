"""Notebooks of bookings, the browsers that are let into them, what nodes offer; and scripts of bookings."""

from tenants.platform.wall import no_right, open_table, protect, tenant_key, updates_only

_OFFER, _NOTEBOOK, _ENTRY = (
    "allocation_nodenotebooks", "allocation_notebook", "allocation_notebookentry",
)
# People start and end notebooks and are let in; workers order them, and keep what nodes say.
RIGHTS = (
    open_table(_OFFER)
    + protect(_NOTEBOOK, grants="SELECT, INSERT, UPDATE (state, reason, ended_at)")
    + protect(_ENTRY, grants="SELECT, INSERT, DELETE, UPDATE (cookie)")
    + tenant_key(_NOTEBOOK, "booking_id", "allocation_booking")
    + tenant_key(_ENTRY, "notebook_id", _NOTEBOOK, cascade=True)
    + no_right("DELETE", _NOTEBOOK, _OFFER)
    + no_right("INSERT, UPDATE", _NOTEBOOK, _ENTRY, _OFFER, roles="portal_ops")
    + no_right("DELETE", _ENTRY, roles="portal_ops")
    + no_right("INSERT", _NOTEBOOK, _ENTRY, roles="portal_system")
    + updates_only(
        {
            _NOTEBOOK: "state, reason, key, is_ordered, ready_at, ended_at",
            _ENTRY: "",
            _OFFER: "programs, seq",
        },
        roles="portal_system",
    )
)
_SCRIPT = "allocation_bookingscript"
# People send one with a booking; workers keep how it ended, and operators see only that.
SCRIPTS = (
    protect(_SCRIPT, grants="SELECT, INSERT")
    + tenant_key(_SCRIPT, "booking_id", "allocation_booking")
    + no_right("DELETE", _SCRIPT)
    + no_right("SELECT, INSERT, UPDATE", _SCRIPT, roles="portal_ops")
    + f"GRANT SELECT (booking_id, tenant_id, exit_code, ended, ended_at, log_file) ON {_SCRIPT} TO portal_ops;\n"
    + no_right("INSERT", _SCRIPT, roles="portal_system")
    + updates_only({_SCRIPT: "log_file, log, exit_code, ended, ended_at"}, roles="portal_system")
)

SQL = RIGHTS + SCRIPTS
