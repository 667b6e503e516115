"""What the tables of hardware and bookings hold to: row security, rights, functions, triggers."""

from django.db import migrations

from allocation.migrations.rules import (
    approvals,
    bookings,
    change_feed,
    charges,
    decisions,
    fleet,
    jira,
    limits,
    others,
    pauses,
    places,
    solver,
    waiting_list,
)

ORDER = (
    fleet,
    bookings,
    places,
    pauses,
    approvals,
    waiting_list,
    limits,
    solver,
    decisions,
    others,
    charges,
    jira,
    change_feed,
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0001_initial"),
        ("billing", "0002_rules"),
        ("tenants", "0002_rules"),
    ]
    operations = [migrations.RunSQL(module.SQL) for module in ORDER]
