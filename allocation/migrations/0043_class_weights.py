"""A policy may say by class what a share of it counts in the queue."""

import importlib

from django.db import migrations

headroom = importlib.import_module("allocation.migrations.0035_headroom")
OBJECTS = ("borrow_windows", "headroom", "headroom_for")


class Migration(migrations.Migration):
    dependencies = [("allocation", "0042_appeals")]
    operations = [
        migrations.RunSQL(
            f"{headroom.DROP}\n{headroom.document(*OBJECTS, 'class_weights')}",
            f"{headroom.DROP}\n{headroom.document(*OBJECTS)}",
        )
    ]
