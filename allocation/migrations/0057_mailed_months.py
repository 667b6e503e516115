"""Months whose figures were mailed."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import no_right, protect

_TABLE = "allocation_mailedmonth"
# Only a worker writes it, once, and nobody else reads it.
RIGHTS = (
    protect(_TABLE, grants="")
    + no_right("UPDATE, DELETE", _TABLE, roles="portal_system")
    + no_right("SELECT, INSERT, UPDATE, DELETE", _TABLE, roles="portal_ops")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0055_tier_energy'),
        ('tenants', '0009_rights_to_credentials'),
    ]

    operations = [
        migrations.CreateModel(
            name='MailedMonth',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('month', models.DateField(help_text='Its first day.')),
                ('at', models.DateTimeField(help_text='When its messages were written.')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'month'), name='mailed_month_once')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
