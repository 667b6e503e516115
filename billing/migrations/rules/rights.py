"""Rights of the roles that tenants' isolation does not bind: no more to money than the portal uses.

`portal_system` runs workers and the solver, `portal_ops` serves operators.
"""

from tenants.platform.wall import callable_by

# Triggers refuse these already. A right that nobody has needs no trigger to be refused.
APPEND_ONLY = """
REVOKE UPDATE, DELETE
  ON billing_transfer, billing_closedmonth, billing_price, billing_pricebook
  FROM portal_system, portal_ops;
REVOKE DELETE ON billing_budget, billing_campaign, billing_pricedraft
  FROM portal_system, portal_ops;
REVOKE INSERT, UPDATE ON billing_pricedraft FROM portal_system;
"""

# Balances follow from transfers: a new account has none, and only the trigger of transfers, which
# runs as the owner, changes them.
BALANCES = """
REVOKE UPDATE, DELETE ON billing_account FROM portal_system, portal_ops;
GRANT UPDATE (limited) ON billing_account TO portal_system, portal_ops;
CREATE FUNCTION billing_account_starts_empty() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE EXCEPTION 'an account starts without a balance' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER starts_empty BEFORE INSERT ON billing_account FOR EACH ROW
  WHEN (NEW.credits <> 0 OR NEW.debits <> 0 OR NEW.pending <> 0)
  EXECUTE FUNCTION billing_account_starts_empty();
"""

# Workers book, too: for Jira, for the waiting list, and for arrays and series.
LADDERS = callable_by("billing_rungs_unreached(uuid[], boolean[], int[], numeric[])")

SQL = APPEND_ONLY + BALANCES + LADDERS
