"""An undo gives a late share back: a refund that names the fee, at most what was charged as it."""

from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import callable_by

BOUNDED = """
CREATE FUNCTION billing_fee_refund_bounded() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  paid numeric;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(NEW.reference::text, 4));
  SELECT coalesce(sum(CASE WHEN t.kind = 'reverse' THEN -t.amount ELSE t.amount END), 0)
    INTO paid
    FROM billing_transfer t
    WHERE t.tenant_id = NEW.tenant_id AND t.reference = NEW.reference AND t.fee = NEW.fee
      AND t.kind IN ('settle', 'reverse')
      AND CASE WHEN t.kind = 'reverse' THEN t.credit_id ELSE t.debit_id END = NEW.credit_id;
  IF NEW.reference IS NULL OR NEW.amount > paid THEN
    RAISE EXCEPTION 'a refund of more than the fee'
      USING ERRCODE = '23514', CONSTRAINT = 'refund_within_fee';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER correction_3_within_fee BEFORE INSERT ON billing_transfer FOR EACH ROW
  WHEN (NEW.kind = 'reverse' AND NEW.fee <> '')
  EXECUTE FUNCTION billing_fee_refund_bounded();
""" + callable_by("billing_fee_refund_bounded()", roles="")


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_rules")]
    operations = [
        migrations.AlterField(
            model_name="transfer",
            name="fee",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                max_length=12,
                help_text="What a charge is for that is for no GPU time: `late_share`, `no_show`, "
                "`setup`. Of a refund: the fee that it gives back.",
            ),
        ),
        migrations.RemoveConstraint(model_name="transfer", name="transfer_fee_in_charge"),
        migrations.AddConstraint(
            model_name="transfer",
            constraint=models.CheckConstraint(
                condition=Q(fee="")
                | Q(kind="settle", surcharge=0)
                | Q(kind="reverse", fee="late_share"),
                name="transfer_fee_in_charge",
            ),
        ),
        migrations.RunSQL(BOUNDED),
    ]
