"""Adds the codes and facts of sentences about nodes and GPUs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0002_rules"),
        ("tenants", "0002_rules"),
    ]

    operations = [
        migrations.AddField(
            model_name="gpu",
            name="health_text",
            field=models.JSONField(
                blank=True,
                help_text="Code and facts of `health_reason`; null in old rows.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="gpuevent",
            name="text",
            field=models.JSONField(
                blank=True, help_text="Code and facts of `sentence`; null in old rows.", null=True
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="state_text",
            field=models.JSONField(
                blank=True,
                help_text="Code and facts of `state_reason`; null in old rows.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="node",
            name="differences",
            field=models.JSONField(
                db_default=[],
                default=list,
                help_text="Texts of inventory changes that wait for an operator; sentences in old rows.",
            ),
        ),
        migrations.AddConstraint(
            model_name="gpu",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("health_text__isnull", True),
                    models.Q(("health_reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="gpu_health_text_is_reason",
            ),
        ),
        migrations.AddConstraint(
            model_name="node",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state_text__isnull", True),
                    models.Q(("state_reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="node_state_text_is_reason",
            ),
        ),
    ]
