"""What the tables of people and tenants hold to: row-level security, rights, functions, triggers."""

from django.db import migrations

from tenants.migrations.rules import (
    audit,
    invitations,
    messages,
    operators,
    passwords,
    people,
    policy_hooks,
    projects,
    reference,
    sessions,
    sign_in,
    sign_on,
    tokens,
    wall,
)

# A function of SQL follows those that it calls.
ORDER = (
    wall,
    reference,
    projects,
    audit,
    people,
    passwords,
    sessions,
    sign_in,
    sign_on,
    invitations,
    tokens,
    messages,
    policy_hooks,
    operators,
)


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0001_initial"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunSQL(module.SQL) for module in ORDER]
