"""Candidates of the policy in the shadow of today."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, system_table, updates_only

_SHADOW, _DIFFERENCE = "allocation_policyshadow", "allocation_policyshadowdifference"
# Operators begin and end shadows; workers decide and keep what differs.
RIGHTS = (
    system_table(_SHADOW)
    + system_table(_DIFFERENCE)
    + no_right("DELETE", _SHADOW, _DIFFERENCE)
    + no_right("INSERT", _DIFFERENCE, roles="portal_ops")
    + updates_only({_DIFFERENCE: ""}, roles="portal_ops")
    + updates_only({_SHADOW: "ended_at"}, roles="portal_ops")
    + updates_only(
        {_DIFFERENCE: "times, last_at, decision, active_starts, starts, rule"}, roles="portal_system"
    )
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0015_policy_trials'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyShadow',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('every', models.PositiveSmallIntegerField(help_text='Of so many decisions, one is decided again.')),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('last_decision', models.BigIntegerField(help_text='The newest decision that was looked at.')),
                ('next_at', models.DateTimeField(help_text='Not before then, so that it takes a fifth of a core at most.')),
                ('decided', models.PositiveIntegerField(default=0, help_text='Decisions that were decided again.')),
                ('differing', models.PositiveIntegerField(default=0, help_text='Those in which something differs.')),
                ('failed', models.PositiveIntegerField(default=0, help_text='Those that could not be decided again.')),
                ('took_ms', models.PositiveBigIntegerField(default=0, help_text='Time of the processor.')),
                ('note', models.CharField(blank=True, help_text='Why the last one failed.', max_length=200)),
                ('started_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='shadows', to='allocation.policyversion')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='PolicyShadowDifference',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('earlier', 'Starts earlier'), ('later', 'Starts later'), ('paused', 'Is paused'), ('spared', 'Is not paused'), ('refused', 'Is refused'), ('taken', 'Is not refused')], max_length=8)),
                ('times', models.PositiveIntegerField(help_text='Decisions in which it did.')),
                ('first_at', models.DateTimeField()),
                ('last_at', models.DateTimeField()),
                ('decision', models.BigIntegerField(help_text='The last of these decisions.')),
                ('active_starts', models.DateTimeField(blank=True, help_text='Planned by the live version.', null=True)),
                ('starts', models.DateTimeField(blank=True, help_text='Planned by the candidate.', null=True)),
                ('rule', models.CharField(blank=True, help_text="The code of the candidate's reason.", max_length=40)),
                ('booking', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking')),
                ('shadow', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='differences', to='allocation.policyshadow')),
            ],
            options={
                'ordering': ['-last_at', 'id'],
            },
        ),
        migrations.AddConstraint(
            model_name='policyshadow',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('version',), name='policy_shadow_one_open'),
        ),
        migrations.AddConstraint(
            model_name='policyshadow',
            constraint=models.CheckConstraint(condition=models.Q(('every__gte', 1)), name='policy_shadow_every'),
        ),
        migrations.AddConstraint(
            model_name='policyshadowdifference',
            constraint=models.UniqueConstraint(fields=('shadow', 'booking', 'kind'), name='policy_shadow_difference_once'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
