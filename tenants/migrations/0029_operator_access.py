"""Access of operators to the data of a tenant."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect

# By the session of an operator only: a token opens nothing. Each row is a role of the person, or
# that of an admin.
WALL = (
    protect("tenants_operatoraccess", grants="SELECT")
    + """
CREATE FUNCTION portal_operator_access(credential bytea, slug text, at timestamptz)
RETURNS TABLE (access_id uuid, user_id bigint, username text, reason text, until timestamptz,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.id, coalesce(a.person_id, o.id), coalesce(p.username, ''), a.reason, a.until,
         t.id, m.project_id, coalesce(m.role, 'tenant_admin'),
         coalesce(nullif(trim(p.first_name || ' ' || p.last_name), ''), p.username, o.username),
         o.time_zone
  FROM portal_holder(credential, at) h
  JOIN tenants_user o ON o.id = h.user_id AND o.is_staff AND h.tenant_id IS NULL
  JOIN tenants_operatoraccess a ON a.operator_id = o.id AND a.ended_at IS NULL AND at < a.until
  JOIN tenants_tenant t ON t.id = a.tenant_id AND t.is_open AND t.slug = portal_operator_access.slug
  LEFT JOIN tenants_user p ON p.id = a.person_id
  LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = a.person_id
  WHERE a.person_id IS NULL OR m.id IS NOT NULL
$$;
REVOKE EXECUTE ON FUNCTION portal_operator_access(bytea, text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_operator_access(bytea, text, timestamptz)
  TO portal_web, portal_system, portal_ops;
"""
)


class Migration(migrations.Migration):

    dependencies = [
        ("tenants", "0028_chat"),
    ]

    operations = [
        migrations.CreateModel(
            name='OperatorAccess',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('reason', models.CharField(help_text="The tenant's admins read it.", max_length=200)),
                ('opened', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('person', models.ForeignKey(blank=True, help_text='Whose pages are shown; null: those of an admin.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-opened', 'id'],
                'indexes': [models.Index(condition=models.Q(('ended_at', None)), fields=['until'], name='operator_access_open')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('operator', 'tenant'), name='operator_access_one_open'), models.CheckConstraint(condition=models.Q(('until__gt', models.F('opened'))), name='operator_access_window_sane'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='operator_access_has_reason')],
            },
        ),
        migrations.RunSQL(WALL),
    ]
