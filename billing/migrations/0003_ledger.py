"""The ledger's rules in the database: append-only, balances by trigger, periods that don't overlap."""

from django.db import migrations

from tenants.platform.wall import append_only, open_table, protect, tenant_key

# AFTER INSERT, never BEFORE: a BEFORE trigger also runs for a row that ON CONFLICT DO NOTHING
# drops, and then a repeated hold is counted twice. Only budget accounts keep a running balance:
# every booking of a tenant would otherwise queue for its one `spend` row.
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
    dependencies = [("billing", "0002_initial"), ("tenants", "0002_wall")]
    operations = [migrations.RunSQL(LEDGER), migrations.RunSQL(WALL)]
