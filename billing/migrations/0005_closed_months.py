"""Closed months, into which no transfer is booked."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

from tenants.platform.wall import append_only, protect

# Fires after `apply_transfers`, which has waited for a month that is being closed.
GUARD = """
CREATE FUNCTION billing_month_is_open() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (
    SELECT FROM added a JOIN billing_closedmonth c ON c.tenant_id = a.tenant_id
      AND (a.at AT TIME ZONE 'UTC')::date >= c.starts
      AND (a.at AT TIME ZONE 'UTC')::date < c.ends) THEN
    RAISE EXCEPTION 'the month is closed'
      USING ERRCODE = '23514', CONSTRAINT = 'transfer_month_open';
  END IF;
  RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_month_is_open() FROM PUBLIC;
CREATE TRIGGER month_is_open AFTER INSERT ON billing_transfer
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_month_is_open();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0004_guardrails"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="ClosedMonth",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("starts", models.DateField()),
                ("ends", models.DateField()),
                ("closed_at", models.DateTimeField()),
                ("closed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
            ],
            options={
                "ordering": ["-starts"],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "starts"), name="month_closed_once"),
                    models.CheckConstraint(condition=Q(ends__gt=F("starts")), name="month_period"),
                ],
            },
        ),
        migrations.AddIndex("transfer", models.Index(fields=["tenant", "at"], name="transfer_at")),
        migrations.RunSQL(
            protect("billing_closedmonth", grants="SELECT, INSERT")
            + append_only("billing_closedmonth")
            + GUARD
        ),
    ]
