"""Workers keep what programs say of their runs on nodes."""

from django.db import migrations

GRANT = """
GRANT UPDATE (step, of, unit, metrics, at, anchor_at, anchor_step, mark_at, mark_step)
  ON allocation_progress TO portal_system;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0009_progress'),
    ]

    operations = [
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]
