"""Charges keep tier and class of their booking; only operators write drafts of prices."""

from django.db import migrations, models

from tenants.platform.wall import no_right


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_alerts")]
    operations = [
        migrations.AddField(
            model_name="transfer",
            name="gpu_class",
            field=models.CharField(blank=True, db_default="", default="", max_length=40),
        ),
        migrations.AddField(
            model_name="transfer",
            name="tier",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of the booking when it was charged. A trigger writes it, and the class.",
                max_length=40,
            ),
        ),
        migrations.RunSQL(
            no_right("INSERT, UPDATE", "billing_pricedraft", roles="portal_system"),
            migrations.RunSQL.noop,
        ),
    ]
