"""Owners change what their bookings on the waiting list wait for."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [("allocation", "0032_disputes")]

    operations = [
        migrations.RunSQL(
            "GRANT UPDATE (until, cost) ON allocation_waitentry TO portal_web;",
            "REVOKE UPDATE (until, cost) ON allocation_waitentry FROM portal_web;",
        ),
    ]
