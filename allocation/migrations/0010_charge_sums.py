"""Sums of charges by budget, day and facts of the booking, kept by the ledger."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

from tenants.platform.wall import protect, tenant_key

# `round` rounds halves away from zero, a statement's lines round them to the even cent.
CENTS = """
CREATE FUNCTION billing_cents(amount numeric) RETURNS numeric
IMMUTABLE LANGUAGE sql SET search_path = pg_catalog AS $$
  SELECT CASE WHEN abs(amount * 100 - trunc(amount * 100)) = 0.5
    THEN round(round(amount * 50) / 50, 2) ELSE round(amount, 2) END
$$;
"""

_CHARGES = """
  SELECT t.tenant_id, own.account_id, (t.at AT TIME ZONE 'UTC')::date AS day, b.owner_id,
         coalesce(b.tier_id, '') AS tier, coalesce(b.planned_class, '') AS gpu_class,
         b.campaign_id, count(*) AS lines, count(*) FILTER (WHERE t.kind <> 'settle') AS corrections,
         sum(CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END) AS exact,
         sum(billing_cents(CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END)) AS amount
  FROM {transfers} t
  JOIN billing_budget own
    ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
  LEFT JOIN allocation_booking b ON b.id = t.reference
  WHERE t.kind IN ('settle', 'charge', 'reverse') AND t.reference IS NOT NULL
  GROUP BY 1, 2, 3, 4, 5, 6, 7
"""
_ADDED = """
  INSERT INTO allocation_chargesum AS kept (tenant_id, account_id, day, owner_id, tier, gpu_class,
                                            campaign_id, lines, corrections, exact, amount)
"""

# The name puts it after `apply_transfers`, which has locked the accounts: two statements never
# write sums of one account at once, in whichever order they come.
TRIGGER = f"""
CREATE FUNCTION allocation_sum_charges() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  {_ADDED}{_CHARGES.format(transfers="added")}
  ON CONFLICT (account_id, day, owner_id, tier, gpu_class, campaign_id) DO UPDATE
    SET lines = kept.lines + excluded.lines, corrections = kept.corrections + excluded.corrections,
        exact = kept.exact + excluded.exact, amount = kept.amount + excluded.amount;
  RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION allocation_sum_charges() FROM PUBLIC;
CREATE TRIGGER sum_charges AFTER INSERT ON billing_transfer
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION allocation_sum_charges();
"""

# The wall comes last: the owner of the tables writes what stands without a tenant's context.
STANDING = _ADDED + _CHARGES.format(transfers="billing_transfer") + ";\n"
WALL = (
    protect("allocation_chargesum", grants="SELECT")
    + "REVOKE INSERT, UPDATE, DELETE ON allocation_chargesum FROM portal_system, portal_ops;\n"
    + tenant_key("allocation_chargesum", "account_id", "billing_account")
    + tenant_key("allocation_chargesum", "campaign_id", "billing_campaign")
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0009_decision_pieces"),
        ("billing", "0006_reversals"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="ChargeSum",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("tier", models.CharField(blank=True, max_length=40)),
                ("gpu_class", models.CharField(blank=True, max_length=40)),
                ("lines", models.PositiveIntegerField()),
                ("corrections", models.PositiveIntegerField()),
                ("exact", models.DecimalField(decimal_places=6, help_text="As the ledger has it.", max_digits=20)),
                ("amount", models.DecimalField(decimal_places=2, help_text="Of the lines, each rounded half-even to cents.", max_digits=20)),
                ("account", models.ForeignKey(db_constraint=False, db_index=False, help_text="The account of the project's budget that paid.", on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.account")),
                ("campaign", models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.campaign")),
                ("owner", models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "day"], name="charge_sum_day")],
                "constraints": [
                    models.UniqueConstraint(fields=("account", "day", "owner", "tier", "gpu_class", "campaign"), name="charge_sum_once", nulls_distinct=False),
                    models.CheckConstraint(condition=Q(corrections__lte=F("lines")), name="charge_sum_corrections"),
                ],
            },
        ),
        migrations.RunSQL(CENTS + TRIGGER + STANDING + WALL),
    ]
