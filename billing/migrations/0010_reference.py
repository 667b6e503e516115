"""Prices, budgets and what belongs to them are reference data of bookings."""

from django.db import migrations

from tenants.platform.reference import reference_of_all, reference_of_tenants


class Migration(migrations.Migration):
    dependencies = [("billing", "0009_fees"), ("tenants", "0014_reference")]
    operations = [
        migrations.RunSQL(
            reference_of_all("billing_pricebook")
            + reference_of_all("billing_price")
            + reference_of_tenants("billing_budget")
            + reference_of_tenants("billing_guardrail")
            + reference_of_tenants("billing_campaign")
            # Of accounts only that they are there: each hold changes their balances.
            + reference_of_tenants("billing_account", ("INSERT",))
        )
    ]
