"""Rights of the roles that tenants' isolation does not bind: no more than their code uses.

`portal_system` runs workers and the sender of webhooks; `portal_ops` serves operators, directories,
second factors and single sign-on.
"""

from tenants.platform.wall import no_right, updates_only

SYSTEM, OPS = "portal_system", "portal_ops"
# Django's own tables, which only its migrations write.
DJANGO = no_right(
    "INSERT, UPDATE, DELETE",
    "auth_group",
    "auth_group_permissions",
    "auth_permission",
    "django_content_type",
    "tenants_user_groups",
    "tenants_user_user_permissions",
)

# What nobody deletes, or only members in web processes.
KEPT = (
    "tenants_announcement",
    "tenants_announcementdismissal",
    "tenants_apitoken",
    "tenants_knownperson",
    "tenants_lab",
    "tenants_lablead",
    "tenants_labquota",
    "tenants_notificationsettings",
    "tenants_operatoraccess",
    "tenants_personquota",
    "tenants_policyhook",
    "tenants_policyhookhealth",
    "tenants_project",
    "tenants_quota",
    "tenants_serviceaccount",
    "tenants_signonprovider",
    "tenants_tenant",
    "tenants_tier",
    "tenants_user",
)
KEPT_BY_SYSTEM = (
    "tenants_directorygroup",
    "tenants_directoryperson",
    "tenants_directorytoken",
    "tenants_gpuclass",
    "tenants_passkey",
    "tenants_password",
    "tenants_quotawindow",
    "tenants_secondfactor",
    "tenants_signongroup",
    "tenants_signonidentity",
    "tenants_webhook",
)
KEPT_BY_OPS = (
    "tenants_chatchannel",
    "tenants_chatmessage",
    "tenants_failedmessage",
    "tenants_idempotencykey",
    "tenants_notification",
    "tenants_outboxmessage",
    "tenants_departure",
    "tenants_passwordreset",
    "tenants_policyhookcall",
    "tenants_publishedevent",
)
DELETES = (
    no_right("DELETE", *KEPT)
    + no_right("DELETE", *KEPT_BY_SYSTEM, roles=SYSTEM)
    + no_right("DELETE", *KEPT_BY_OPS, roles=OPS)
)

# Columns that change after a row was made.
UPDATES = updates_only(
    {
        "tenants_announcementdismissal": "",
        "tenants_chatmessage": "due, error, settled, state, tries",
        "tenants_lablead": "",
        "tenants_maillink": "used",
        "tenants_operatoraccess": "ended_at",
        # A row that is answered is locked.
        "tenants_passwordreset": "at",
        "tenants_policyhookcall": "",
        # A trigger locks the event of a delivery of the platform.
        "tenants_publishedevent": "at",
        "tenants_quotawindow": "",
        "tenants_knownperson": "disabled",
        "tenants_notificationsettings": "",
        "tenants_serviceaccount": "closed",
    }
)
# Accounts, second factors, directories and providers are the operators' process's.
UPDATES_OF_SYSTEM = updates_only(
    {
        "tenants_announcement": "",
        "tenants_directorygroup": "",
        "tenants_directoryperson": "",
        "tenants_directorytoken": "",
        "tenants_passkey": "",
        "tenants_passkeychallenge": "",
        "tenants_secondfactor": "",
        "tenants_signonattempt": "",
        "tenants_signongroup": "",
        "tenants_signonidentity": "",
        "tenants_signonprovider": "",
        "tenants_gpuclass": "",
        "tenants_mail": "dropped, due, sent, tries",
        "tenants_outboxmessage": "sent",
        "tenants_password": "",
        "tenants_user": "",
    },
    SYSTEM,
) + no_right("INSERT", "tenants_password", "tenants_user", roles=SYSTEM)
UPDATES_OF_OPS = updates_only(
    {
        "tenants_announcement": "withdrawn_at",
        "tenants_chatchannel": "",
        "tenants_directorytoken": "last_address, last_used",
        "tenants_idempotencykey": "answer, is_final, status",
        "tenants_departure": "",
        "tenants_failedmessage": "dismissed, next_try",
        "tenants_lab": "",
        "tenants_labquota": "",
        "tenants_mail": "",
        "tenants_notification": "read",
        "tenants_outboxmessage": "",
        "tenants_personquota": "",
        "tenants_policyhook": "",
        "tenants_policyhookhealth": "",
        "tenants_project": "",
        "tenants_user": "email, first_name, is_active, is_staff, last_name, mails, time_zone, username",
    },
    OPS,
)

SQL = DJANGO + DELETES + UPDATES + UPDATES_OF_SYSTEM + UPDATES_OF_OPS
