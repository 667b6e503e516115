"""What the tables of money hold to: row-level security, rights, functions, triggers."""

from django.db import migrations

from billing.migrations.rules import budgets, ledger, prices


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial"), ("tenants", "0002_rules")]
    operations = [migrations.RunSQL(module.SQL) for module in (ledger, budgets, prices)]
