"""The data sets that nodes have in their cache folders."""

import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.functions.text
import django.db.models.lookups
from django.db import migrations, models

from tenants.platform.wall import no_right, open_table, updates_only

_CACHE = "allocation_nodecache"
# Workers keep what nodes say; everybody may read which data sets there are.
RIGHTS = (
    open_table(_CACHE)
    + no_right("DELETE", _CACHE)
    + no_right("INSERT, UPDATE", _CACHE, roles="portal_ops")
    + updates_only({_CACHE: "sets, said_at"}, roles="portal_system")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0051_versions_of_approval_rules'),
    ]

    operations = [
        migrations.CreateModel(
            name='NodeCache',
            fields=[
                ('node', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='allocation.node')),
                ('sets', models.JSONField(help_text='By name: the size in MiB and the Unix seconds of the last use, or null.')),
                ('said_at', models.DateTimeField(help_text='When the node said so.')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.comparison.Cast('sets', models.TextField())), 24000), name='node_cache_bounded')],
            },
        ),
        migrations.AddIndex(
            model_name='booking',
            index=models.Index(condition=models.Q(('ask__has_key', 'data')), fields=['state'], name='booking_with_data'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
