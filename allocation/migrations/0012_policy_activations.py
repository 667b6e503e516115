"""Versions of the policy go into force at a time, with an approval, and again."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from allocation.migrations.rules.policies import SQL


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0011_made_with'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyApproval',
            fields=[
                ('version', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='approval', serialize=False, to='allocation.policyversion')),
                ('at', models.DateTimeField()),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='PolicyActivation',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('published', 'Published'), ('activation', 'Activation'), ('rollback', 'Rollback')], max_length=12)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('done', 'In force since'), ('withdrawn', 'Withdrawn'), ('failed', 'Failed')], default='waiting', max_length=10)),
                ('asked_at', models.DateTimeField()),
                ('starts', models.DateTimeField(help_text='From when on it is to be in force.')),
                ('due_at', models.DateTimeField(blank=True, help_text='When it is carried out; null: a second operator approves first.', null=True)),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('waiver', models.CharField(blank=True, help_text="Why a site's only operator did not wait for a day.", max_length=300)),
                ('ended_at', models.DateTimeField(blank=True, help_text='When it was carried out or given up.', null=True)),
                ('note', models.CharField(blank=True, help_text='Why it failed.', max_length=300)),
                ('asked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('former', models.ForeignKey(blank=True, help_text='The version that was in force before.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.policyversion')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='activations', to='allocation.policyversion')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='policy_due')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'waiting')), fields=('version',), name='policy_activation_one_waiting'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('state', 'waiting')), models.Q(models.Q(('state', 'waiting'), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='policy_activation_ends_once'), models.CheckConstraint(condition=models.Q(('due_at', None), ('due_at__gte', models.F('starts')), _connector='OR'), name='policy_activation_not_early'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'rollback'), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='policy_rollback_has_a_reason')],
            },
        ),
        migrations.RunSQL(SQL, migrations.RunSQL.noop),
    ]
