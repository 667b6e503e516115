"""Workers and operators change of tokens and sessions what their code changes, and no holder.

A token keeps its holder, its digest, and the tokens that it came from, which end it with them. Who is
signed in with a session is written by sign-ins, in the operators' process; workers only remove
sessions that are over.
"""

from tenants.platform.wall import no_right, updates_only

ENDS = "expires, last_address, last_used, revoked"
WORKERS = {"tenants_apitoken": f"{ENDS}, warned", "tenants_session": "expires, last_seen"}
# An erased account's tokens lose their names.
OPERATORS = {"tenants_apitoken": f"{ENDS}, name"}

# A worker that added one could sign in as anybody.
MADE_BY_PEOPLE = (
    "tenants_apitoken",
    "tenants_directorygroup",
    "tenants_directoryperson",
    "tenants_directorytoken",
    "tenants_operatoraccess",
    "tenants_passkey",
    "tenants_passkeychallenge",
    "tenants_secondfactor",
    "tenants_serviceaccount",
    "tenants_signonattempt",
    "tenants_signongroup",
    "tenants_signonidentity",
    "tenants_signonprovider",
)

SQL = (
    updates_only(WORKERS, "portal_system")
    + updates_only(OPERATORS, "portal_ops")
    + no_right("INSERT", "tenants_session", *MADE_BY_PEOPLE, roles="portal_system")
)
