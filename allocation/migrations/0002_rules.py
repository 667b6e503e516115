"""What the tables of hardware and bookings hold to: row security, rights, functions, triggers."""

from django.db import migrations

from allocation.migrations.rules import (
    appeals,
    approvals,
    bookings,
    capacity,
    change_feed,
    charges,
    clusters,
    decisions,
    demand,
    ends_once,
    engines,
    fleet,
    hand_overs,
    hosts,
    jira,
    limit_cuts,
    limits,
    notebooks,
    others,
    pauses,
    places,
    policies,
    policy_trials,
    progress,
    rights,
    solver,
    waiting_list,
    workloads,
    zones,
)

# A function of SQL follows those that it calls, and rights that are taken follow what gives them.
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
    rights,
    progress,
    policies,
    workloads,
    policy_trials,
    demand,
    clusters,
    capacity,
    hand_overs,
    notebooks,
    appeals,
    limit_cuts,
    hosts,
    zones,
    engines,
    ends_once,
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0001_initial"),
        ("billing", "0002_rules"),
        ("tenants", "0002_rules"),
    ]
    operations = [migrations.RunSQL(module.SQL) for module in ORDER]
