"""The campaign that a booking is charged to."""

import django.db.models.deletion
from django.db import migrations, models

KEY = """
ALTER TABLE allocation_booking ADD CONSTRAINT allocation_booking_campaign_id_in_project
  FOREIGN KEY (tenant_id, project_id, campaign_id)
  REFERENCES billing_campaign (tenant_id, project_id, id);
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0004_decision_deltas"), ("billing", "0003_budget_tree")]
    operations = [
        migrations.AddField("booking", "campaign", models.ForeignKey(blank=True, db_constraint=False, help_text="The campaign whose budget counts it, too.", null=True, on_delete=django.db.models.deletion.PROTECT, to="billing.campaign")),
        migrations.RunSQL(KEY),
    ]
