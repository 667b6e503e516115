"""Trials with demand that never came."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0023_capacity'),
    ]

    operations = [
        migrations.AddField(
            model_name='policytrial',
            name='demand',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='`load`, `sizes` and `bursts` in percent; empty: the demand of the past.'),
        ),
    ]
