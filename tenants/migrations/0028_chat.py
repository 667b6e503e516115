"""Chat channels and their messages; when people were notified of expiring tokens."""

import django.contrib.postgres.fields
import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

WALL = "\n".join(
    [
        protect("tenants_chatchannel", grants="SELECT, INSERT, DELETE"),
        # A test message, and the log of a deleted channel.
        protect("tenants_chatmessage", grants="SELECT, INSERT, DELETE"),
        tenant_key("tenants_chatmessage", "channel_id", "tenants_chatchannel"),
        tenant_key("tenants_chatchannel", "project_id", "tenants_project"),
        "GRANT SELECT (warned), INSERT (warned) ON tenants_apitoken TO portal_web;",
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("tenants", "0027_audit_search"),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='warned',
            field=models.DateTimeField(blank=True, help_text='When its person was notified that it expires soon.', null=True),
        ),
        migrations.CreateModel(
            name='ChatChannel',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('service', models.CharField(help_text='Scheme of its address.', max_length=16)),
                ('sealed', models.TextField(help_text='The address, encrypted; it has secrets of the service.')),
                ('events', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=20), default=list, help_text="Types, of a project's channel.", size=None)),
                ('created', models.DateTimeField()),
                ('last_sent', models.DateTimeField(blank=True, null=True)),
                ('last_error', models.CharField(blank=True, help_text='Of the newest attempt.', max_length=200)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['created', 'id'],
            },
        ),
        migrations.CreateModel(
            name='ChatMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('message', models.BigIntegerField(blank=True, help_text='The outbox message; null for a test.', null=True)),
                ('kind', models.CharField(max_length=60)),
                ('title', models.CharField(max_length=160)),
                ('text', models.CharField(blank=True, max_length=400)),
                ('path', models.CharField(blank=True, max_length=200)),
                ('created', models.DateTimeField()),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('sent', 'Sent'), ('failed', 'Failed')], default='pending', max_length=8)),
                ('due', models.DateTimeField()),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('settled', models.DateTimeField(blank=True, null=True)),
                ('error', models.CharField(blank=True, max_length=200)),
                ('channel', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='tenants.chatchannel')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddIndex(
            model_name='chatchannel',
            index=models.Index(fields=['tenant', 'user'], name='chat_of_user'),
        ),
        migrations.AddIndex(
            model_name='chatchannel',
            index=models.Index(fields=['tenant', 'project'], name='chat_of_project'),
        ),
        migrations.AddConstraint(
            model_name='chatchannel',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='chat_channel_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='chatchannel',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('project', None), ('user__isnull', False)), models.Q(('project__isnull', False), ('user', None)), _connector='OR'), name='chat_channel_of_one'),
        ),
        migrations.AddIndex(
            model_name='chatmessage',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['due', 'id'], name='chat_due'),
        ),
        migrations.AddIndex(
            model_name='chatmessage',
            index=models.Index(fields=['tenant', 'channel', '-id'], name='chat_log'),
        ),
        migrations.AddConstraint(
            model_name='chatmessage',
            constraint=models.UniqueConstraint(fields=('channel', 'message'), name='chat_message_once'),
        ),
        migrations.AddConstraint(
            model_name='chatmessage',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('settled', None), ('state', 'pending')), models.Q(models.Q(('state', 'pending'), _negated=True), ('settled__isnull', False)), _connector='OR'), name='chat_message_settled'),
        ),
        migrations.RunSQL(WALL),
    ]
