"""Guarantees by tier."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.migrations.rules import tier_guarantees


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0013_inner_guarantees'),
    ]

    operations = [
        migrations.CreateModel(
            name='TierGuarantee',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('units', models.BigIntegerField()),
                ('tiers', models.JSONField(help_text='Slugs, in order.')),
                ('changed', models.DateTimeField()),
                ('changed_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['gpu_class', 'id'],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'gpu_class'), name='tier_guarantee_once'), models.CheckConstraint(condition=models.Q(('units__gt', 0)), name='tier_guarantee_positive')],
            },
        ),
        migrations.RunSQL(tier_guarantees.RIGHTS, migrations.RunSQL.noop),
    ]
