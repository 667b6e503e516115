"""Counts as the second person of a draft of prices only who may publish it."""

from django.db import migrations

from billing.migrations.rules import second_operator


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_unit_limits"), ("tenants", "0010_operator_roles")]
    operations = [migrations.RunSQL(second_operator.SQL, migrations.RunSQL.noop)]
