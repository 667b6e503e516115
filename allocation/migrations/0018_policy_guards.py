"""Guards of versions of the policy."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0017_by_cost'),
    ]

    operations = [
        migrations.AddField(
            model_name='policyactivation',
            name='guard',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='`hours`, and `figures` with bands; empty: nothing is guarded.'),
        ),
        migrations.AlterField(
            model_name='policyactivation',
            name='kind',
            field=models.CharField(choices=[('published', 'Published'), ('activation', 'Activation'), ('rollback', 'Rollback'), ('return', 'Return by the guard')], max_length=12),
        ),
    ]
