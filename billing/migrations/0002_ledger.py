"""The ledger's rules in the database: append-only transfers, balances by trigger, bounded
corrections, and budget periods that don't overlap."""

from django.db import migrations

from tenants.platform.wall import append_only, open_table, protect, tenant_key

# AFTER INSERT, never BEFORE: a BEFORE trigger also runs for a row that ON CONFLICT DO NOTHING
# drops, and would count a repeated hold twice. Only budget accounts keep a running balance:
# otherwise all bookings of a tenant would queue for its one `spend` row.
LEDGER = """
CREATE FUNCTION billing_apply_transfer() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  held billing_transfer;
BEGIN
  IF NEW.kind IN ('settle', 'release') THEN
    SELECT * INTO held FROM billing_transfer WHERE id = NEW.hold_id;
    IF held.kind <> 'hold' OR held.debit_id <> NEW.debit_id OR held.credit_id <> NEW.credit_id
       OR NEW.amount > held.amount OR held.tenant_id <> NEW.tenant_id
       OR held.reference IS DISTINCT FROM NEW.reference THEN
      RAISE EXCEPTION 'transfer does not end its hold' USING ERRCODE = '23514';
    END IF;
    UPDATE billing_account
      SET pending = pending - held.amount,
          debits = debits + CASE NEW.kind WHEN 'settle' THEN NEW.amount ELSE 0 END
      WHERE id = NEW.debit_id AND kind = 'budget';
  ELSIF NEW.kind = 'hold' THEN
    UPDATE billing_account SET pending = pending + NEW.amount
      WHERE id = NEW.debit_id AND kind = 'budget';
  ELSE
    UPDATE billing_account SET debits = debits + NEW.amount
      WHERE id = NEW.debit_id AND kind = 'budget';
    UPDATE billing_account SET credits = credits + NEW.amount
      WHERE id = NEW.credit_id AND kind = 'budget';
  END IF;
  RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_apply_transfer() FROM PUBLIC;
CREATE TRIGGER apply_transfer AFTER INSERT ON billing_transfer
  FOR EACH ROW EXECUTE FUNCTION billing_apply_transfer();
ALTER TABLE billing_account ADD CONSTRAINT account_currency_once UNIQUE (id, currency);
ALTER TABLE billing_budget ADD CONSTRAINT budget_periods_apart
  EXCLUDE USING gist (project_id WITH =, daterange(starts, ends) WITH &&);
"""

# A correction moves money between a budget and `spend`, for a reference. Corrections of one
# reference are serialised, so that two refunds at once can't return more than was charged.
CORRECTIONS = """
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

WALL = "\n".join(
    [
        open_table("billing_pricebook"),
        open_table("billing_price"),
        protect("billing_account", grants="SELECT, INSERT"),
        protect("billing_transfer", grants="SELECT, INSERT"),
        protect("billing_budget", grants="SELECT, INSERT, UPDATE"),
        tenant_key("billing_transfer", "debit_id", "billing_account"),
        tenant_key("billing_transfer", "credit_id", "billing_account"),
        tenant_key("billing_transfer", "hold_id", "billing_transfer"),
        tenant_key("billing_budget", "project_id", "tenants_project"),
        tenant_key("billing_budget", "account_id", "billing_account"),
        append_only("billing_transfer"),
    ]
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial"), ("tenants", "0002_wall")]
    operations = [migrations.RunSQL(LEDGER + CORRECTIONS + WALL)]
