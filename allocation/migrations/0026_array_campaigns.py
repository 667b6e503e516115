"""The campaign of an array belongs to its project."""

from django.db import migrations

KEY = """
ALTER TABLE allocation_bookingarray ADD CONSTRAINT allocation_bookingarray_campaign_id_in_project
  FOREIGN KEY (tenant_id, project_id, campaign_id)
  REFERENCES billing_campaign (tenant_id, project_id, id);
"""
DROP = """
ALTER TABLE allocation_bookingarray DROP CONSTRAINT allocation_bookingarray_campaign_id_in_project;
"""


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0025_dependencies"),
        ("billing", "0003_budget_tree"),
    ]

    operations = [migrations.RunSQL(KEY, DROP)]
