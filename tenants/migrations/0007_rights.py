"""Workers and operators have no right to a table or a column that their code does not write."""

from django.db import migrations

from tenants.migrations.rules import rights


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_rotated_tokens")]
    operations = [migrations.RunSQL(rights.SQL, migrations.RunSQL.noop)]
