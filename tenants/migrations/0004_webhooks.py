"""Published events, webhooks and their deliveries."""

import django.contrib.postgres.fields
import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

WALL = "\n".join(
    [
        # Only the relay publishes, so that ids are in the order of commits.
        protect("tenants_publishedevent", grants="SELECT"),
        protect("tenants_webhook"),
        protect("tenants_webhookdelivery"),
        tenant_key("tenants_publishedevent", "project_id", "tenants_project"),
        tenant_key("tenants_webhook", "project_id", "tenants_project"),
        tenant_key("tenants_webhookdelivery", "webhook_id", "tenants_webhook"),
        tenant_key("tenants_webhookdelivery", "event_id", "tenants_publishedevent"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("tenants", "0003_mail_links"),
    ]

    operations = [
        migrations.CreateModel(
            name='PublishedEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('key', models.UUIDField(default=uuid.uuid4, help_text='The public id.', unique=True)),
                ('subject', models.UUIDField(help_text='The booking. Its events are delivered in order.')),
                ('type', models.CharField(max_length=60)),
                ('at', models.DateTimeField()),
                ('data', models.JSONField()),
                ('project', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('url', models.CharField(max_length=500)),
                ('events', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=60), help_text='Names, or `booking.*`.', size=None)),
                ('created', models.DateTimeField()),
                ('salt', models.BinaryField(max_length=32)),
                ('previous_salt', models.BinaryField(blank=True, max_length=32, null=True)),
                ('previous_until', models.DateTimeField(blank=True, help_text='Until then messages have the signature of both secrets.', null=True)),
                ('last_delivered', models.DateTimeField(blank=True, null=True)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=200)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, help_text='Events of this project only; without one, of the whole tenant.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('key', models.UUIDField(help_text='The header `webhook-id`: the same in every attempt.')),
                ('type', models.CharField(max_length=60)),
                ('subject', models.UUIDField(blank=True, help_text='Deliveries of one subject wait for each other.', null=True)),
                ('created', models.DateTimeField()),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'Failed'), ('dropped', 'Dropped')], default='pending', max_length=10)),
                ('due', models.DateTimeField(help_text='Time of the next attempt.')),
                ('claimed_until', models.DateTimeField(blank=True, help_text='A sender works on it; later ones may after this time.', null=True)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('first_tried', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.JSONField(default=list, help_text='Time, status or error, milliseconds.')),
                ('settled', models.DateTimeField(blank=True, null=True)),
                ('event', models.ForeignKey(blank=True, db_constraint=False, help_text='None for a test message.', null=True, on_delete=django.db.models.deletion.CASCADE, to='tenants.publishedevent')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('webhook', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tenants.webhook')),
            ],
        ),
        migrations.AddIndex(
            model_name='publishedevent',
            index=models.Index(fields=['at'], name='event_age'),
        ),
        migrations.AddConstraint(
            model_name='publishedevent',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='event_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='webhook_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(('events__len__gte', 1)), name='webhook_has_events'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('previous_salt', None), ('previous_until', None)), models.Q(('previous_salt__isnull', False), ('previous_until__isnull', False)), _connector='OR'), name='webhook_previous_secret_ends'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('disabled_at', None), ('disabled_reason', '')), models.Q(('disabled_at__isnull', False), models.Q(('disabled_reason', ''), _negated=True)), _connector='OR'), name='webhook_disabled_for_a_reason'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(fields=['tenant', 'webhook', '-id'], name='webhook_log'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['due'], name='webhook_due'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['webhook', 'subject', 'id'], name='webhook_order'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(fields=['event'], name='webhook_of_event'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.UniqueConstraint(condition=models.Q(('subject__isnull', False)), fields=('webhook', 'event'), name='webhook_event_queued_once'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('settled', None), ('state', 'pending')), models.Q(models.Q(('state', 'pending'), _negated=True), ('settled__isnull', False)), _connector='OR'), name='webhook_delivery_settled'),
        ),
        migrations.RunSQL(WALL),
    ]
