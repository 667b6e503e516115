"""GPUs that a running booking gives back."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0029_budget_restraints"),
    ]

    operations = [
        migrations.AddField(
            model_name='bookingchange',
            name='gives_back',
            field=models.JSONField(db_default=models.Value([], output_field=models.JSONField()), default=list, help_text='Allocations that a running booking gives up.'),
        ),
        # A paused booking can be made shorter by its owner.
        migrations.RunSQL(
            "GRANT UPDATE (remaining_seconds) ON allocation_pause TO portal_web;",
            "REVOKE UPDATE (remaining_seconds) ON allocation_pause FROM portal_web;",
        ),
    ]
