"""What the tables of people and tenants hold to: row-level security, rights, functions, triggers."""

from django.db import migrations

from tenants.migrations.rules import (
    audit,
    credentials,
    dated_guarantees,
    departures,
    failures,
    invitations,
    messages,
    operator_roles,
    operators,
    passwords,
    people,
    policy_hooks,
    projects,
    reference,
    rights,
    saved_views,
    sessions,
    sign_in,
    sign_on,
    tier_guarantees,
    token_ancestors,
    tokens,
    wall,
)

# A function of SQL follows those that it calls, and rights that are taken follow what gives them.
ORDER = (
    wall,
    reference,
    projects,
    audit,
    people,
    passwords,
    token_ancestors,
    sessions,
    sign_in,
    sign_on,
    invitations,
    tokens,
    messages,
    policy_hooks,
    operators,
    departures,
    failures,
    rights,
    credentials,
    operator_roles,
    dated_guarantees,
    saved_views,
    tier_guarantees,
)


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0001_initial"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunSQL(module.SQL) for module in ORDER]
