"""Guarantees of labs and projects between dates."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.migrations.rules import dated_guarantees


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0012_saved_views'),
    ]

    operations = [
        migrations.AddField(
            model_name='datedguarantee',
            name='lab',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.lab'),
        ),
        migrations.AddField(
            model_name='datedguarantee',
            name='project',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project'),
        ),
        migrations.AlterField(
            model_name='datedguarantee',
            name='ended',
            field=models.DateTimeField(blank=True, help_text='When somebody ended it early.', null=True),
        ),
        migrations.AddConstraint(
            model_name='datedguarantee',
            constraint=models.CheckConstraint(condition=models.Q(('lab', None), ('project', None), _connector='OR'), name='dated_guarantee_of_one_owner'),
        ),
        migrations.RunSQL(dated_guarantees.INNER, migrations.RunSQL.noop),
    ]
