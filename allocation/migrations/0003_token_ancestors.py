"""Ends an enrolment token with the operator's token that made it."""

import django.db.models.deletion
from django.db import migrations, models

from allocation.migrations.rules import enrolment


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0002_rules'),
        ('tenants', '0003_token_ancestors'),
    ]

    operations = [
        migrations.AddField(
            model_name='enrolmenttoken',
            name='made_with',
            field=models.ForeignKey(blank=True, help_text="The operator's token that made it, with which it ends; null: a browser.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.RunSQL(enrolment.SQL),
    ]
