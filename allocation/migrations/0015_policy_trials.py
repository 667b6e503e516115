"""Trials of the policy on the site's past."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, system_table, updates_only

_TRIAL, _PART = "allocation_policytrial", "allocation_policytrialpart"
# Operators ask for trials and cancel them; workers play them and keep the plays.
RIGHTS = (
    system_table(_TRIAL)
    + system_table(_PART)
    + no_right("DELETE", _TRIAL, _PART)
    + updates_only({_PART: ""})
    + updates_only(
        {
            _TRIAL: "state, attempts, alive_at, permille, finished_at, took_ms, note, report",
        },
        roles="portal_system",
    )
    + updates_only({_TRIAL: "state, finished_at"}, roles="portal_ops")
    + no_right("INSERT", _PART, roles="portal_ops")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0014_engines'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyTrial',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('days', models.PositiveSmallIntegerField()),
                ('seeds', models.PositiveSmallIntegerField()),
                ('until', models.DateTimeField(help_text='The end of the past that is played.')),
                ('asked_at', models.DateTimeField()),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('running', 'Running'), ('done', 'Done'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='waiting', max_length=10)),
                ('attempts', models.PositiveSmallIntegerField(default=0, help_text='Processes that have begun it.')),
                ('alive_at', models.DateTimeField(blank=True, help_text='When its process wrote last.', null=True)),
                ('permille', models.PositiveSmallIntegerField(default=0, help_text='How far it is.')),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('took_ms', models.PositiveIntegerField(default=0, help_text='Time of the processor.')),
                ('note', models.CharField(blank=True, help_text='Why it failed.', max_length=300)),
                ('report', models.JSONField(blank=True, null=True)),
                ('against', models.ForeignKey(help_text='The version that was in force.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.policyversion')),
                ('asked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('candidate', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.policyversion')),
            ],
            options={
                'ordering': ['-asked_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='PolicyTrialPart',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('is_candidate', models.BooleanField()),
                ('seed', models.PositiveSmallIntegerField()),
                ('outcome', models.JSONField()),
                ('made_at', models.DateTimeField()),
                ('trial', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='parts', to='allocation.policytrial')),
            ],
        ),
        migrations.AddIndex(
            model_name='policytrial',
            index=models.Index(condition=models.Q(('finished_at', None)), fields=['asked_at'], name='policy_trial_open'),
        ),
        migrations.AddConstraint(
            model_name='policytrial',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished_at', None), ('state__in', ('waiting', 'running'))), models.Q(models.Q(('state__in', ('waiting', 'running')), _negated=True), ('finished_at__isnull', False)), _connector='OR'), name='policy_trial_ends_once'),
        ),
        migrations.AddConstraint(
            model_name='policytrial',
            constraint=models.CheckConstraint(condition=models.Q(('report', None), ('state', 'done'), _connector='OR'), name='policy_trial_done_with_report'),
        ),
        migrations.AddConstraint(
            model_name='policytrialpart',
            constraint=models.UniqueConstraint(fields=('trial', 'is_candidate', 'seed'), name='policy_trial_part_once'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
