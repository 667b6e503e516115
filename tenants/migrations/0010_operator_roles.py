"""Gives operators roles; each present operator may do everything, as until now."""

import django.contrib.postgres.fields
import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.migrations.rules import operator_roles


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0009_rights_to_credentials'),
    ]

    operations = [
        migrations.CreateModel(
            name='OperatorRole',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('role', models.CharField(choices=[('site', 'Site'), ('class', 'GPU classes'), ('pool', 'Racks and pools'), ('read_only', 'Read only'), ('billing', 'Billing'), ('support', 'Support')], max_length=10)),
                ('names', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=60), default=list, help_text='Classes, or racks and pools, to which it is limited; empty for other roles.', size=None)),
                ('created', models.DateTimeField()),
                ('since', models.DateTimeField(blank=True, help_text='Null: it waits for a second operator.', null=True)),
                ('ended', models.DateTimeField(blank=True, null=True)),
                ('approved_by', models.ForeignKey(blank=True, help_text='The second operator, if one was needed.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_by', models.ForeignKey(blank=True, help_text='Null: the owner of the database, by a command.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('ended_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='operator_roles', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['user__username', 'role', '-created', 'id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended', None)), fields=('user', 'role'), name='operator_role_once'), models.CheckConstraint(condition=models.Q(('role__in', ['site', 'class', 'pool', 'read_only', 'billing', 'support'])), name='operator_role_known'), models.CheckConstraint(condition=models.Q(models.Q(('names__len__gt', 0), ('role__in', ['class', 'pool'])), models.Q(models.Q(('role__in', ['class', 'pool']), _negated=True), ('names', [])), _connector='OR'), name='operator_role_names'), models.CheckConstraint(condition=models.Q(('approved_by', None), models.Q(models.Q(('approved_by', models.F('created_by')), _negated=True), models.Q(('approved_by', models.F('user')), _negated=True), ('since__isnull', False)), _connector='OR'), name='operator_role_second_is_another')],
            },
        ),
        migrations.RunSQL(operator_roles.RIGHTS + operator_roles.SITE, migrations.RunSQL.noop),
        migrations.RunSQL(operator_roles.PRESENT, migrations.RunSQL.noop),
    ]
