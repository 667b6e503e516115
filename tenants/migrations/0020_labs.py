"""Labs, limits of labs and of persons, and limits at some times."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.reference import reference_of_tenants
from tenants.platform.wall import protect, tenant_key

# Admins set limits at some times of their labs and projects, only operators those of a tenant.
OWN_WINDOWS = """
CREATE POLICY own_windows_added ON tenants_quotawindow AS RESTRICTIVE FOR INSERT TO portal_web
  WITH CHECK (project_id IS NOT NULL OR lab_id IS NOT NULL);
CREATE POLICY own_windows_removed ON tenants_quotawindow AS RESTRICTIVE FOR DELETE TO portal_web
  USING (project_id IS NOT NULL OR lab_id IS NOT NULL);
"""
WALL = "\n".join(
    [
        protect("tenants_lab", grants="SELECT, INSERT, UPDATE"),
        protect("tenants_lablead", grants="SELECT, INSERT, DELETE"),
        protect("tenants_labquota"),
        protect("tenants_personquota"),
        protect("tenants_quotawindow", grants="SELECT, INSERT, DELETE"),
        OWN_WINDOWS,
        tenant_key("tenants_project", "lab_id", "tenants_lab"),
        tenant_key("tenants_lablead", "lab_id", "tenants_lab"),
        tenant_key("tenants_labquota", "lab_id", "tenants_lab"),
        tenant_key("tenants_personquota", "project_id", "tenants_project"),
        tenant_key("tenants_quotawindow", "lab_id", "tenants_lab"),
        tenant_key("tenants_quotawindow", "project_id", "tenants_project"),
        *map(
            reference_of_tenants,
            ["tenants_lab", "tenants_labquota", "tenants_personquota", "tenants_quotawindow"],
        ),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("tenants", "0019_policy_hooks"),
    ]

    operations = [
        migrations.CreateModel(
            name='Lab',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('slug', models.SlugField(max_length=40)),
                ('name', models.CharField(max_length=120)),
                ('is_open', models.BooleanField(default=True)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['name', 'id'],
            },
        ),
        migrations.AddField(
            model_name='project',
            name='lab',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.lab'),
        ),
        migrations.CreateModel(
            name='LabLead',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('lab', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.lab')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='LabQuota',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('guaranteed_units', models.BigIntegerField(default=0)),
                ('borrow_limit_units', models.BigIntegerField(blank=True, help_text='Most units above the guarantee; null is no limit.', null=True)),
                ('lend_limit_units', models.BigIntegerField(blank=True, help_text='Most idle units that others may borrow; null is all.', null=True)),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('lab', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.lab')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='PersonQuota',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('limit_units', models.BigIntegerField()),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='QuotaWindow',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('limit_units', models.BigIntegerField()),
                ('first_day', models.DateField(blank=True, null=True)),
                ('last_day', models.DateField(blank=True, help_text='The last day on which it begins.', null=True)),
                ('weekdays', models.JSONField(default=list, help_text='Monday is 0; empty is every day.')),
                ('first_hour', models.PositiveSmallIntegerField(default=0)),
                ('end_hour', models.PositiveSmallIntegerField(default=24, help_text='Not later than the first hour: on the next day.')),
                ('zone', models.CharField(default='UTC', max_length=64)),
                ('created', models.DateTimeField()),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('lab', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.lab')),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['gpu_class', 'created', 'id'],
            },
        ),
        migrations.AddConstraint(
            model_name='lab',
            constraint=models.UniqueConstraint(fields=('tenant', 'slug'), name='lab_slug_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='lab',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='lab_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='lablead',
            constraint=models.UniqueConstraint(fields=('lab', 'user'), name='lab_lead_once'),
        ),
        migrations.AddConstraint(
            model_name='labquota',
            constraint=models.UniqueConstraint(fields=('lab', 'gpu_class'), name='lab_quota_once'),
        ),
        migrations.AddConstraint(
            model_name='labquota',
            constraint=models.CheckConstraint(condition=models.Q(('guaranteed_units__gte', 0), models.Q(('borrow_limit_units', None), ('borrow_limit_units__gte', 0), _connector='OR'), models.Q(('lend_limit_units', None), ('lend_limit_units__gte', 0), _connector='OR')), name='lab_quota_never_negative'),
        ),
        migrations.AddConstraint(
            model_name='personquota',
            constraint=models.UniqueConstraint(fields=('tenant', 'project', 'user', 'gpu_class'), name='person_quota_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='personquota',
            constraint=models.CheckConstraint(condition=models.Q(('limit_units__gte', 0)), name='person_quota_never_negative'),
        ),
        migrations.AddConstraint(
            model_name='quotawindow',
            constraint=models.CheckConstraint(condition=models.Q(('limit_units__gte', 0)), name='quota_window_never_negative'),
        ),
        migrations.AddConstraint(
            model_name='quotawindow',
            constraint=models.CheckConstraint(condition=models.Q(('lab', None), ('project', None), _connector='OR'), name='quota_window_of_one_owner'),
        ),
        migrations.AddConstraint(
            model_name='quotawindow',
            constraint=models.CheckConstraint(condition=models.Q(('end_hour__gte', 1), ('end_hour__lte', 24), ('first_hour__lte', 23)), name='quota_window_hours'),
        ),
        migrations.AddConstraint(
            model_name='quotawindow',
            constraint=models.CheckConstraint(condition=models.Q(('first_day', None), ('last_day', None), ('first_day__lte', models.F('last_day')), _connector='OR'), name='quota_window_days'),
        ),
        migrations.RunSQL(WALL),
    ]
