"""A member may give a paused fixed window an earlier end."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("allocation", "0003_late_refunds")]
    operations = [
        migrations.RunSQL("GRANT UPDATE (ends_before) ON allocation_pause TO portal_web;"),
    ]
