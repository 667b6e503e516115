"""Lets the only operator of a site publish their own drafts of prices."""

from django.db import migrations

from billing.migrations.rules import second_person


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_rules")]
    operations = [
        # The trigger first, so that there is always a rule.
        migrations.RunSQL(second_person.SQL),
        migrations.RemoveConstraint("pricedraft", "price_draft_second_person"),
    ]
