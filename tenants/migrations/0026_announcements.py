"""Announcements of operators."""

import django.contrib.postgres.fields
import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import open_table

# CASE, because pages without a tenant, such as the sign-in, read the announcements of all:
# portal_tenant() would raise there.
WALL = """
ALTER TABLE tenants_announcement ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants_announcement FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON tenants_announcement
  USING (CASE
    WHEN tenants = '{}' THEN true
    WHEN coalesce(current_setting('portal.tenant', true), '') = '' THEN false
    ELSE (SELECT portal_tenant()) = ANY (tenants) END)
  WITH CHECK (tenants = ARRAY[(SELECT portal_tenant())]);
GRANT SELECT ON tenants_announcement TO portal_web;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_announcement TO portal_system, portal_ops;
""" + open_table("tenants_announcementdismissal", web="SELECT, INSERT")


class Migration(migrations.Migration):

    dependencies = [
        ("tenants", "0025_project_labels"),
    ]

    operations = [
        migrations.CreateModel(
            name='Announcement',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('text', models.CharField(max_length=400)),
                ('level', models.CharField(choices=[('info', 'Note'), ('wait', 'Maintenance'), ('risk', 'Warning')], max_length=5)),
                ('starts', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('tenants', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), default=list, help_text='Who sees it; empty: everybody.', size=None)),
                ('created', models.DateTimeField()),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-starts', 'id'],
            },
        ),
        migrations.CreateModel(
            name='AnnouncementDismissal',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='announcement',
            name='created_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='announcementdismissal',
            name='announcement',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='tenants.announcement'),
        ),
        migrations.AddField(
            model_name='announcementdismissal',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='announcement',
            constraint=models.CheckConstraint(condition=models.Q(('until__gt', models.F('starts'))), name='announcement_window_sane'),
        ),
        migrations.AddConstraint(
            model_name='announcement',
            constraint=models.CheckConstraint(condition=models.Q(('text', ''), _negated=True), name='announcement_has_text'),
        ),
        migrations.AddConstraint(
            model_name='announcementdismissal',
            constraint=models.UniqueConstraint(fields=('user', 'announcement'), name='announcement_dismissed_once'),
        ),
        migrations.RunSQL(WALL),
    ]
