"""Counts as the second person of a draft whom its author has put out of office in the last week."""

from django.db import migrations

from billing.migrations.rules import second_operator, second_operator_stays


class Migration(migrations.Migration):
    dependencies = [("billing", "0008_second_operator"), ("tenants", "0017_rights_to_insert")]
    operations = [migrations.RunSQL(second_operator_stays.SQL, second_operator.SQL)]
