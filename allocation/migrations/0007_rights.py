"""Workers and operators have no right to a table or a column that their code does not write."""

from django.db import migrations

from allocation.migrations.rules import rights


class Migration(migrations.Migration):
    dependencies = [("allocation", "0006_loans")]
    operations = [migrations.RunSQL(rights.SQL, migrations.RunSQL.noop)]
