"""Balances are the trigger's alone, and every process that books may ask for reached rungs."""

from django.db import migrations

from billing.migrations.rules import rights


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_second_person")]
    operations = [migrations.RunSQL(rights.SQL, migrations.RunSQL.noop)]
