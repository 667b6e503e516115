"""Charges as people read them: sums, disputes of statements, unusual spend, mailed reports."""

from tenants.platform.wall import callable_by, no_right, protect, tenant_key

# Sums of charges by budget, day and facts of the booking. The name of the trigger puts it after
# `apply_transfers`, which has locked the accounts: two statements never write sums of one account
# at once, in whichever order they come.
SUMS = (
    protect("allocation_chargesum", grants="SELECT")
    + tenant_key("allocation_chargesum", "account_id", "billing_account")
    + tenant_key("allocation_chargesum", "campaign_id", "billing_campaign")
    + """
REVOKE INSERT, UPDATE, DELETE ON allocation_chargesum FROM portal_system, portal_ops;
CREATE FUNCTION allocation_sum_charges() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO allocation_chargesum AS kept (tenant_id, account_id, day, owner_id, tier, gpu_class,
                                            campaign_id, lines, corrections, exact, amount)
  SELECT t.tenant_id, own.account_id, (t.at AT TIME ZONE 'UTC')::date AS day, b.owner_id,
         coalesce(b.tier_id, '') AS tier, coalesce(b.planned_class, '') AS gpu_class,
         b.campaign_id, count(*) AS lines, count(*) FILTER (WHERE t.kind <> 'settle') AS corrections,
         sum(CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END) AS exact,
         sum(billing_cents(CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END)) AS amount
  FROM added t
  JOIN billing_budget own
    ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
  LEFT JOIN allocation_booking b ON b.id = t.reference
  WHERE t.kind IN ('settle', 'charge', 'reverse') AND t.reference IS NOT NULL
  GROUP BY 1, 2, 3, 4, 5, 6, 7
  ON CONFLICT (account_id, day, owner_id, tier, gpu_class, campaign_id) DO UPDATE
    SET lines = kept.lines + excluded.lines, corrections = kept.corrections + excluded.corrections,
        exact = kept.exact + excluded.exact, amount = kept.amount + excluded.amount;
  RETURN NULL;
END $$;
CREATE TRIGGER sum_charges AFTER INSERT ON billing_transfer
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION allocation_sum_charges();
"""
    + callable_by("allocation_sum_charges()", roles="")
)

# A dispute is answered once, by operators only.
DISPUTES = (
    protect("allocation_statementdispute", grants="SELECT, INSERT, UPDATE")
    + tenant_key("allocation_statementdispute", "project_id", "tenants_project")
    + tenant_key("allocation_statementdispute", "booking_id", "allocation_booking")
    + """
CREATE FUNCTION allocation_check_dispute() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a dispute is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'dispute_answered_once';
  END IF;
  IF NEW.state IN ('accepted', 'declined') AND current_user = 'portal_web' THEN
    RAISE EXCEPTION 'only an operator answers a dispute'
      USING ERRCODE = '23514', CONSTRAINT = 'dispute_operators_answer';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_dispute BEFORE UPDATE ON allocation_statementdispute
  FOR EACH ROW EXECUTE FUNCTION allocation_check_dispute();
"""
)

# Variances are written by tasks only.
REPORTS = (
    protect("allocation_spendvariance", grants="SELECT")
    + tenant_key("allocation_spendvariance", "budget_id", "billing_budget")
    + protect("allocation_reportsubscription")
    + tenant_key("allocation_reportsubscription", "project_id", "tenants_project")
    + tenant_key("allocation_reportsubscription", "lab_id", "tenants_lab")
    + tenant_key("allocation_reportsubscription", "made_with_id", "tenants_apitoken")
    + protect("allocation_statementexport", grants="SELECT, INSERT, DELETE")
    + tenant_key("allocation_statementexport", "project_id", "tenants_project")
)

# Each charge keeps the tier and the class that its booking has then, as the sums of charges do.
FACTS = """
CREATE FUNCTION allocation_charge_facts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  booking record;
BEGIN
  SELECT b.tier_id, b.planned_class INTO booking FROM allocation_booking b
    WHERE b.tenant_id = NEW.tenant_id AND b.id = NEW.reference;
  NEW.tier := coalesce(booking.tier_id, '');
  NEW.gpu_class := coalesce(booking.planned_class, '');
  RETURN NEW;
END $$;
CREATE TRIGGER charge_facts BEFORE INSERT ON billing_transfer
  FOR EACH ROW WHEN (NEW.kind IN ('settle', 'charge', 'reverse') AND NEW.reference IS NOT NULL)
  EXECUTE FUNCTION allocation_charge_facts();
""" + callable_by("allocation_charge_facts()", roles="")

_MONTH = "allocation_mailedmonth"
# Only a worker writes it, once, and nobody else reads it.
MONTHS = (
    protect(_MONTH, grants="")
    + no_right("UPDATE, DELETE", _MONTH, roles="portal_system")
    + no_right("SELECT, INSERT, UPDATE, DELETE", _MONTH, roles="portal_ops")
)

SQL = SUMS + DISPUTES + REPORTS + FACTS + MONTHS
