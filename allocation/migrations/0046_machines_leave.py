"""When providers take machines back."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0045_forecast_rules'),
    ]

    operations = [
        migrations.AddField(
            model_name='capacitymachine',
            name='leaves',
            field=models.DateTimeField(blank=True, help_text='When its provider takes it back, by its own notice.', null=True),
        ),
        migrations.RunSQL(
            "GRANT UPDATE (leaves) ON allocation_capacitymachine TO portal_system;", migrations.RunSQL.noop
        ),
    ]
