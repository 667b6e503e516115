"""A function that undoes new holds if a rung of a ladder turns out to be reached at their commit."""

from django.db import migrations

from tenants.platform.wall import callable_by

# Money that was returned to the source, or a charge that was corrected, is in both columns: the share
# here is never below the true one, because what is compared is at most the whole amount.
RUNGS_UNREACHED = """
CREATE FUNCTION billing_rungs_unreached(
  accounts uuid[], committed boolean[], percents int[], own numeric[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (
    SELECT FROM unnest(accounts, committed, percents, own)
      AS rung (account_id, is_committed, percent, own)
    JOIN billing_account a ON a.id = rung.account_id
    WHERE (a.debits + CASE WHEN rung.is_committed THEN a.pending ELSE 0 END - rung.own) * 100
      >= a.credits * rung.percent) THEN
    RAISE EXCEPTION 'a rung of a ladder is reached'
      USING ERRCODE = '23514', CONSTRAINT = 'rung_unreached';
  END IF;
END $$;
""" + callable_by("billing_rungs_unreached(uuid[], boolean[], int[], numeric[])", roles="portal_web")


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_levels_and_fees")]
    operations = [migrations.RunSQL(RUNGS_UNREACHED)]
