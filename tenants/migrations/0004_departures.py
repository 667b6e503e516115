"""Notes who has left and what was closed, until nothing of theirs is open."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.migrations.rules import departures


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0003_token_ancestors'),
    ]

    operations = [
        migrations.CreateModel(
            name='Departure',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('is_seen', models.BooleanField(db_default=False, default=False, help_text='Whether a turn has ended what was planned.')),
                ('project', models.ForeignKey(blank=True, db_constraint=False, help_text='Null: all projects of the organisation.', null=True, on_delete=django.db.models.deletion.CASCADE, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='tenants.tenant')),
                ('user', models.ForeignKey(blank=True, help_text='Null: everybody.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('is_seen', False)), fields=['id'], name='departure_new')],
            },
        ),
        migrations.RunSQL(departures.SQL),
    ]
