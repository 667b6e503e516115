"""The storage that agents find; what stands there now was set by operators."""

from django.db import migrations, models

SET_BY_OPERATORS = "UPDATE allocation_node SET storage_by_operator = true WHERE storage <> '';"


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0060_reports_of_tokens'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='storage_by_operator',
            field=models.BooleanField(db_default=False, default=False, help_text="An operator has set the storage: reports don't change it."),
        ),
        migrations.AddField(
            model_name='node',
            name='reported_storage',
            field=models.CharField(blank=True, choices=[('', 'Not known'), ('local', 'Local NVMe'), ('shared', 'Shared'), ('none', 'None')], db_default='', default='', help_text='What its agent found; empty: no agent has looked.', max_length=6),
        ),
        migrations.AddField(
            model_name='node',
            name='reported_scratch_gb',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Local space that its agent found, in GB.'),
        ),
        migrations.RunSQL(SET_BY_OPERATORS, migrations.RunSQL.noop),
    ]
