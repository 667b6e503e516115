"""Guarantees of tenants between dates."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.migrations.rules import dated_guarantees


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0010_operator_roles'),
    ]

    operations = [
        migrations.CreateModel(
            name='DatedGuarantee',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('guaranteed_units', models.BigIntegerField()),
                ('starts', models.DateTimeField()),
                ('ends', models.DateTimeField()),
                ('created', models.DateTimeField()),
                ('ended', models.DateTimeField(blank=True, help_text='When an operator ended it early.', null=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('ended_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['starts', 'id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('guaranteed_units__gte', 0)), name='dated_guarantee_never_negative'), models.CheckConstraint(condition=models.Q(('starts__lt', models.F('ends'))), name='dated_guarantee_lasts'), models.CheckConstraint(condition=models.Q(models.Q(('ended', None), ('ended_by', None)), models.Q(('ended__gte', models.F('created')), ('ended__isnull', False), ('ended_by__isnull', False)), _connector='OR'), name='dated_guarantee_ended_by_somebody')],
            },
        ),
        migrations.RunSQL(dated_guarantees.RIGHTS + dated_guarantees.KEPT, migrations.RunSQL.noop),
    ]
