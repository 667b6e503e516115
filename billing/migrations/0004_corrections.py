"""Corrections of a charge: written by operators only, bounded by what was charged."""

from django.db import migrations, models
from django.db.models import Q

KINDS = ["fund", "hold", "settle", "release", "reverse", "charge"]

# A correction moves money between a budget and `spend`, for a reference. Those of one reference
# wait for each other, so that two refunds at once can't give back more than was charged.
BOUNDED = """
CREATE FUNCTION billing_correction_bounded() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  paid numeric;
BEGIN
  IF NEW.reference IS NULL THEN
    RAISE EXCEPTION 'a correction is of a charge' USING ERRCODE = '23514';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended(NEW.reference::text, 4));
  SELECT coalesce(sum(CASE WHEN t.kind = 'reverse' THEN -t.amount ELSE t.amount END), 0)
    INTO paid
    FROM billing_transfer t
    WHERE t.tenant_id = NEW.tenant_id AND t.reference = NEW.reference
      AND t.kind IN ('settle', 'charge', 'reverse')
      AND CASE WHEN t.kind = 'reverse' THEN t.credit_id ELSE t.debit_id END
        = CASE WHEN NEW.kind = 'reverse' THEN NEW.credit_id ELSE NEW.debit_id END;
  IF NEW.kind = 'reverse' AND NEW.amount > paid THEN
    RAISE EXCEPTION 'a refund of more than was charged'
      USING ERRCODE = '23514', CONSTRAINT = 'refund_within_charge';
  END IF;
  RETURN NEW;
END $$;
REVOKE EXECUTE ON FUNCTION billing_correction_bounded() FROM PUBLIC;
CREATE FUNCTION billing_correction_by_operators() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE EXCEPTION 'charges are corrected by operators' USING ERRCODE = '42501';
END $$;
CREATE FUNCTION billing_is_correction(kind text, debit uuid) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT kind = 'charge' OR (kind = 'reverse' AND EXISTS (
    SELECT FROM billing_account a WHERE a.id = debit AND a.kind = 'spend'))
$$;
REVOKE EXECUTE ON FUNCTION billing_is_correction(text, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_is_correction(text, uuid)
  TO portal_web, portal_system, portal_ops;
CREATE TRIGGER correction_1_by_operators BEFORE INSERT ON billing_transfer FOR EACH ROW
  WHEN (NEW.kind IN ('charge', 'reverse') AND current_user = 'portal_web'
        AND billing_is_correction(NEW.kind, NEW.debit_id))
  EXECUTE FUNCTION billing_correction_by_operators();
CREATE TRIGGER correction_2_bounded BEFORE INSERT ON billing_transfer FOR EACH ROW
  WHEN (NEW.kind IN ('charge', 'reverse') AND billing_is_correction(NEW.kind, NEW.debit_id))
  EXECUTE FUNCTION billing_correction_bounded();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_ledger")]

    operations = [
        migrations.RemoveConstraint("transfer", "transfer_kind"),
        migrations.AddConstraint(
            "transfer",
            models.CheckConstraint(condition=Q(kind__in=KINDS), name="transfer_kind"),
        ),
        migrations.RunSQL(BOUNDED),
    ]
