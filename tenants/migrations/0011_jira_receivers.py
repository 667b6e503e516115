"""Receivers that are trackers: several calls for an event, each with its own content."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0010_service_accounts")]
    operations = [
        migrations.AddField("webhook", "kind", models.CharField(choices=[("webhook", "Webhook"), ("jira", "Jira")], db_default="webhook", default="webhook", max_length=10)),
        migrations.AddField("webhookdelivery", "content", models.JSONField(blank=True, help_text="What a tracker is called with; null for events.", null=True)),
        migrations.RemoveConstraint("webhookdelivery", "webhook_event_queued_once"),
        migrations.AddConstraint("webhookdelivery", models.UniqueConstraint(condition=models.Q(("subject__isnull", False)), fields=("webhook", "event", "type"), name="webhook_event_queued_once")),
    ]
