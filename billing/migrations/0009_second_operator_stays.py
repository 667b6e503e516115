"""Counts an operator that the author of a draft has closed in the last week as the second person."""

from django.db import migrations

from billing.migrations.rules import second_operator, second_operator_stays


class Migration(migrations.Migration):
    dependencies = [("billing", "0008_second_operator"), ("tenants", "0017_rights_to_insert")]
    operations = [migrations.RunSQL(second_operator_stays.SQL, second_operator.SQL)]
