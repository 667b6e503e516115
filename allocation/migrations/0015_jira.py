"""Connections to Jira."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key


def cascade(table, column, target):
    """SQL for a key within the tenant whose rows go with their target."""
    return tenant_key(table, column, target).replace(";", " ON DELETE CASCADE;")


WALL = "\n".join(
    [
        protect("allocation_jiraconnection"),
        protect("allocation_jiraproject"),
        protect("allocation_jiramessage"),
        cascade("allocation_jiraconnection", "receiver_id", "tenants_webhook"),
        cascade("allocation_jiraproject", "connection_id", "allocation_jiraconnection"),
        tenant_key("allocation_jiraproject", "project_id", "tenants_project"),
        cascade("allocation_jiramessage", "connection_id", "allocation_jiraconnection"),
        tenant_key("allocation_jiramessage", "booking_id", "allocation_booking"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0014_booking_changes"),
        ("tenants", "0011_jira_receivers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='JiraConnection',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('flavour', models.CharField(choices=[('cloud', 'Cloud'), ('data_center', 'Data Center')], max_length=20)),
                ('account', models.CharField(blank=True, help_text='E-mail address of the account; of Cloud only.', max_length=254)),
                ('sealed_token', models.TextField(help_text='API token or personal access token, encrypted.')),
                ('receiver', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='jira', to='tenants.webhook')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='JiraMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('delivery', models.CharField(help_text='The same when it is sent again.', max_length=100)),
                ('subject', models.CharField(help_text='`GPU-7` or `sprint:12`.', max_length=80)),
                ('at', models.DateTimeField(help_text='When it happened in Jira.')),
                ('received', models.DateTimeField()),
                ('content', models.JSONField(help_text='What was read from the message.')),
                ('state', models.CharField(choices=[('received', 'Received'), ('done', 'Done'), ('refused', 'Refused'), ('ignored', 'Ignored')], default='received', max_length=10)),
                ('answer', models.CharField(blank=True, max_length=500)),
                ('booking', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking')),
                ('connection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='allocation.jiraconnection')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='JiraProject',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('key', models.CharField(help_text='Key of the Jira project, such as GPU.', max_length=20)),
                ('act', models.CharField(choices=[('book', 'Book'), ('quote', 'Quote')], max_length=10)),
                ('request', models.CharField(help_text='With fields: {customfield_10050}.', max_length=200)),
                ('labels', models.JSONField(default=dict)),
                ('transitions', models.JSONField(default=dict, help_text='State of the booking to status of the issue.')),
                ('board', models.BigIntegerField(blank=True, help_text='Whose sprints are booked.', null=True)),
                ('sprint_request', models.CharField(blank=True, max_length=200)),
                ('connection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='projects', to='allocation.jiraconnection')),
                ('owner', models.ForeignKey(help_text='Whose bookings they are.', on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('tier', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tier')),
            ],
        ),
        migrations.AddConstraint(
            model_name='jiraconnection',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='jira_connection_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='jiraconnection',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('flavour', 'cloud'), _negated=True), models.Q(('account', ''), _negated=True), _connector='OR'), name='jira_cloud_has_account'),
        ),
        migrations.AddIndex(
            model_name='jiramessage',
            index=models.Index(fields=['tenant', 'connection', '-id'], name='jira_message_log'),
        ),
        migrations.AddIndex(
            model_name='jiramessage',
            index=models.Index(fields=['connection', 'subject', '-at'], name='jira_message_subject'),
        ),
        migrations.AddIndex(
            model_name='jiramessage',
            index=models.Index(condition=models.Q(('state', 'received')), fields=['id'], name='jira_message_waiting'),
        ),
        migrations.AddConstraint(
            model_name='jiramessage',
            constraint=models.UniqueConstraint(fields=('connection', 'delivery'), name='jira_message_once'),
        ),
        migrations.AddConstraint(
            model_name='jiraproject',
            constraint=models.UniqueConstraint(fields=('connection', 'key'), name='jira_project_once'),
        ),
        migrations.AddConstraint(
            model_name='jiraproject',
            constraint=models.UniqueConstraint(condition=models.Q(('board__isnull', False)), fields=('connection', 'board'), name='jira_board_once'),
        ),
        migrations.AddConstraint(
            model_name='jiraproject',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('board', None), ('sprint_request', '')), models.Q(('board__isnull', False), models.Q(('sprint_request', ''), _negated=True)), _connector='OR'), name='jira_board_has_request'),
        ),
        migrations.RunSQL(WALL),
    ]
