"""A site has one currency."""

from django.db import migrations

# Not a constraint: a site of 1.0 that has changed its currency keeps its former price books.
_ADD = """
CREATE FUNCTION billing_one_currency() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
BEGIN
  IF NEW.currency <> (SELECT currency FROM billing_pricebook ORDER BY version DESC LIMIT 1) THEN
    RAISE EXCEPTION 'price_book_one_currency: the newest price book has another currency'
      USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'price_book_one_currency';
  END IF;
  RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION billing_one_currency() FROM PUBLIC;
CREATE TRIGGER one_currency BEFORE INSERT ON billing_pricebook FOR EACH ROW
  EXECUTE FUNCTION billing_one_currency();
"""
_DROP = "DROP TRIGGER one_currency ON billing_pricebook; DROP FUNCTION billing_one_currency();"


class Migration(migrations.Migration):
    """A new price book has the currency of the newest one."""

    dependencies = [("billing", "0002_rules")]

    operations = [migrations.RunSQL(_ADD, _DROP)]
