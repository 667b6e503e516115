"""Workers publish no prices of their own: only those of a version of the policy that goes into force.

A version that an operator planned is put into force by a worker, and so is one to which a guard returns.
"""

from django.db import migrations

# A worker writes versions for a part of the site, which set no prices, and returns to earlier ones. Operators
# ask for what sets some.
VERSIONS = """
REVOKE INSERT ON allocation_policyapproval FROM portal_system;
CREATE FUNCTION allocation_policy_by_operator() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_TABLE_NAME = 'allocation_policyactivation' THEN
    IF NOT EXISTS (
      SELECT FROM allocation_policyversion v WHERE v.number = NEW.version_id AND v.scenario <> '{}'::jsonb)
    THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION 'workers write and ask for no scenario' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER by_operator BEFORE INSERT ON allocation_policyversion FOR EACH ROW
  WHEN (current_user = 'portal_system' AND NEW.scenario <> '{}'::jsonb)
  EXECUTE FUNCTION allocation_policy_by_operator();
CREATE TRIGGER by_operator BEFORE INSERT ON allocation_policyactivation FOR EACH ROW
  WHEN (current_user = 'portal_system' AND NEW.kind = 'activation')
  EXECUTE FUNCTION allocation_policy_by_operator();
"""

# What a version sets, and what a return sets back. All else is as in the book before.
BOOKS = """
CREATE FUNCTION allocation_policy_prices(tried timestamptz)
RETURNS TABLE (whose text, field text, value text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public AS $$
  WITH due AS (
    SELECT a.id, a.kind, v.scenario FROM allocation_policyactivation a
    JOIN allocation_policyversion v ON v.number = a.version_id AND v.state = 'live'
    WHERE a.state = 'waiting' AND a.due_at <= tried
  )
  SELECT (each->>'gpu_class') || '/' || (each->>'tier'), named.key, named.value #>> '{}'
  FROM due, jsonb_array_elements(coalesce(due.scenario->'prices', '[]')) AS each, jsonb_each(each) AS named
  WHERE due.kind = 'activation'
  UNION ALL
  SELECT '', named.key, named.value #>> '{}'
  FROM due, jsonb_each(coalesce(due.scenario->'peak_hours', '{}')) AS named WHERE due.kind = 'activation'
  UNION ALL
  SELECT each->>1, each->>2, each->>3
  FROM due JOIN allocation_policyactivation done ON done.state = 'done' AND done.id < due.id,
    jsonb_array_elements(done.applied) AS each
  WHERE due.kind = 'return' AND each->>0 IN ('price', 'peak_hours')
$$;
REVOKE EXECUTE ON FUNCTION allocation_policy_prices(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION allocation_policy_prices(timestamptz) TO portal_system, portal_ops;
CREATE FUNCTION allocation_price_book_by_policy() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
DECLARE
  former billing_pricebook;
BEGIN
  SELECT * INTO former FROM billing_pricebook ORDER BY version DESC LIMIT 1;
  IF NEW.version = former.version + 1 AND NEW.valid_from = NEW.published_at
    AND (NEW.currency, NEW.setup_fees) = (former.currency, former.setup_fees)
    AND EXISTS (SELECT FROM allocation_policy_prices(NEW.published_at))
    AND ((NEW.peak_zone, NEW.peak_weekly) = (former.peak_zone, former.peak_weekly)
      OR EXISTS (SELECT FROM allocation_policy_prices(NEW.published_at) WHERE whose = ''))
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'workers publish only the prices of a version of the policy' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER by_policy BEFORE INSERT ON billing_pricebook FOR EACH ROW
  WHEN (current_user = 'portal_system') EXECUTE FUNCTION allocation_price_book_by_policy();
"""

PRICES = """
CREATE FUNCTION allocation_price_by_policy() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
DECLARE
  book billing_pricebook;
  former billing_price;
  named text := NEW.gpu_class_id || '/' || NEW.tier_id;
BEGIN
  SELECT * INTO book FROM billing_pricebook WHERE version = NEW.book_id;
  SELECT * INTO former FROM billing_price
    WHERE book_id = NEW.book_id - 1
      AND (gpu_class_id, tier_id, profile) = (NEW.gpu_class_id, NEW.tier_id, NEW.profile);
  IF former.id IS NOT NULL
    AND (NEW.per_gpu_hour = former.per_gpu_hour OR NEW.profile = '' AND EXISTS (
      SELECT FROM allocation_policy_prices(book.published_at)
      WHERE whose = named AND field = 'per_gpu_hour' AND value::numeric = NEW.per_gpu_hour))
    AND (NEW.peak_per_gpu_hour IS NOT DISTINCT FROM former.peak_per_gpu_hour
      OR NEW.profile = '' AND EXISTS (
        SELECT FROM allocation_policy_prices(book.published_at)
        WHERE whose = named AND field = 'peak_per_gpu_hour'
          AND value::numeric IS NOT DISTINCT FROM NEW.peak_per_gpu_hour))
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'workers publish only the prices of a version of the policy' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER by_policy BEFORE INSERT ON billing_price FOR EACH ROW
  WHEN (current_user = 'portal_system') EXECUTE FUNCTION allocation_price_by_policy();
"""
UNDO = """
DROP TRIGGER by_policy ON billing_price;
DROP TRIGGER by_policy ON billing_pricebook;
DROP TRIGGER by_operator ON allocation_policyactivation;
DROP TRIGGER by_operator ON allocation_policyversion;
DROP FUNCTION allocation_price_by_policy();
DROP FUNCTION allocation_price_book_by_policy();
DROP FUNCTION allocation_policy_prices(timestamptz);
DROP FUNCTION allocation_policy_by_operator();
GRANT INSERT ON allocation_policyapproval TO portal_system;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0002_rules"), ("billing", "0002_rules")]
    operations = [migrations.RunSQL(VERSIONS + BOOKS + PRICES, UNDO)]
