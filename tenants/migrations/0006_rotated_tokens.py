"""Ends with a token also what others have rotated that it made."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.migrations.rules import rotated_tokens


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0005_failed_messages'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='follows',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The token that was rotated into this one. What it depended on, this one does.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.RunSQL(rotated_tokens.SQL, migrations.RunSQL.noop),
    ]
