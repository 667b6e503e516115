"""The policy hook of each organisation, its failures and the log of its calls."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.reference import reference_of_tenants
from tenants.platform.wall import protect, tenant_key

# Web processes keep the hook in memory; its failures change often, so they are in a table apart.
WALL = "\n".join(
    [
        protect("tenants_policyhook"),
        protect("tenants_policyhookhealth"),
        protect("tenants_policyhookcall", grants="SELECT, INSERT, DELETE"),
        tenant_key("tenants_policyhookhealth", "hook_id", "tenants_policyhook"),
        tenant_key("tenants_policyhookcall", "hook_id", "tenants_policyhook"),
        reference_of_tenants("tenants_policyhook"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("tenants", "0018_tier_bounds"),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyHook',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=500)),
                ('timeout_ms', models.PositiveSmallIntegerField(help_text='Milliseconds from the look-up of the name to the end of the answer.')),
                ('is_on', models.BooleanField(help_text='Whether it is asked.')),
                ('is_fail_open', models.BooleanField(help_text='Whether a request is admitted without a valid answer; else it is refused.')),
                ('is_dry_run', models.BooleanField(help_text='Whether answers are only logged.')),
                ('created', models.DateTimeField()),
                ('salt', models.BinaryField(max_length=32)),
                ('previous_salt', models.BinaryField(blank=True, max_length=32, null=True)),
                ('previous_until', models.DateTimeField(blank=True, help_text='Until then questions have the signature of both secrets.', null=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='PolicyHookCall',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('key', models.UUIDField(help_text='The header `webhook-id`.')),
                ('at', models.DateTimeField()),
                ('act', models.CharField(help_text='What was asked for: `booking`, `batch`, …', max_length=20)),
                ('items', models.PositiveIntegerField(help_text='Number of requests in the question.')),
                ('requests', models.JSONField(help_text='The first requests of the question.')),
                ('status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('answer', models.TextField(blank=True, help_text='The beginning of the body, if it could be read as decisions.')),
                ('milliseconds', models.PositiveIntegerField()),
                ('outcome', models.CharField(choices=[('admitted', 'Admitted'), ('changed', 'Changed'), ('denied', 'Denied'), ('failed', 'No valid answer'), ('skipped', 'Not asked')], max_length=10)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('is_fail_open', models.BooleanField(help_text='The rule for failures at that time.')),
                ('is_dry_run', models.BooleanField()),
                ('asker', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('hook', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='calls', to='tenants.policyhook')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='PolicyHookHealth',
            fields=[
                ('hook', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='health', serialize=False, to='tenants.policyhook')),
                ('failures', models.PositiveIntegerField(default=0, help_text='Since the last valid answer.')),
                ('not_before', models.DateTimeField(blank=True, help_text='After too many failures it is asked again at this time.', null=True)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.AddConstraint(
            model_name='policyhook',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='policy_hook_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='policyhook',
            constraint=models.CheckConstraint(condition=models.Q(('timeout_ms__gte', 100), ('timeout_ms__lte', 2000)), name='policy_hook_timeout'),
        ),
        migrations.AddConstraint(
            model_name='policyhook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('previous_salt', None), ('previous_until', None)), models.Q(('previous_salt__isnull', False), ('previous_until__isnull', False)), _connector='OR'), name='policy_hook_previous_secret_ends'),
        ),
        migrations.AddIndex(
            model_name='policyhookcall',
            index=models.Index(fields=['tenant', '-id'], name='policy_hook_log'),
        ),
        migrations.AddConstraint(
            model_name='policyhookcall',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('error__gt', ''), ('outcome__in', ['failed', 'skipped'])), models.Q(('error', ''), ('outcome__in', ['admitted', 'changed', 'denied'])), _connector='OR'), name='policy_hook_call_error'),
        ),
        migrations.RunSQL(WALL),
    ]
