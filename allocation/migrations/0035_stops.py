"""Stops of new work, set by operators; a tenant reads its own and those of all."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.reference import reference_of_all

# CASE, because pages without a tenant, such as the sign-in, read the stops of all:
# portal_tenant() would raise there.
WALL = """
ALTER TABLE allocation_stop ENABLE ROW LEVEL SECURITY;
ALTER TABLE allocation_stop FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON allocation_stop
  USING (CASE
    WHEN tenant_id IS NULL THEN true
    WHEN coalesce(current_setting('portal.tenant', true), '') = '' THEN false
    ELSE tenant_id = (SELECT portal_tenant()) END)
  WITH CHECK (tenant_id = (SELECT portal_tenant()));
GRANT SELECT ON allocation_stop TO portal_web;
GRANT SELECT, INSERT, UPDATE, DELETE ON allocation_stop TO portal_system, portal_ops;
"""

class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0034_tier_versions"),
        ("tenants", "0018_tier_bounds"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Stop',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('site', 'The whole site'), ('tenant', 'A tenant'), ('tier', 'A tier'), ('class', 'A GPU class')], max_length=6)),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField(blank=True, help_text='Planned end; null: until an operator ends it.', null=True)),
                ('reason', models.CharField(help_text='Shown to everybody who is stopped.', max_length=120)),
                ('ended_at', models.DateTimeField(blank=True, help_text='When an operator ended it.', null=True)),
                ('begun_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('tier', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tier')),
            ],
            options={
                'ordering': ['-since', 'id'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('gpu_class', None), ('scope', 'site'), ('tenant', None), ('tier', None)), models.Q(('gpu_class', None), ('scope', 'tenant'), ('tenant__isnull', False), ('tier', None)), models.Q(('gpu_class', None), ('scope', 'tier'), ('tenant', None), ('tier__isnull', False)), models.Q(('gpu_class__isnull', False), ('scope', 'class'), ('tenant', None), ('tier', None)), _connector='OR'), name='stop_names_its_scope'), models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('scope', 'tenant', 'tier', 'gpu_class'), name='stop_open_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('until', None), ('until__gt', models.F('since')), _connector='OR'), name='stop_window_sane'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='stop_has_reason')],
            },
        ),
        migrations.AlterField(
            model_name='booking',
            name='is_drained',
            field=models.BooleanField(db_default=False, default=False, help_text='A stop or a budget\'s ladder keeps it from starting; it has no planned start.'),
        ),
        migrations.RunSQL(WALL + reference_of_all("allocation_stop")),
    ]
