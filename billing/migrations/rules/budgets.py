"""Budgets of tenants, projects, campaigns and people, and the rungs of their ladders."""

from tenants.platform.reference import reference_of_tenants
from tenants.platform.wall import callable_by, protect, tenant_key

CAMPAIGNS = (
    protect("billing_campaign", grants="SELECT, INSERT, UPDATE")
    + tenant_key("billing_campaign", "project_id", "tenants_project")
    + """
ALTER TABLE billing_campaign
  ADD CONSTRAINT campaign_id_in_project UNIQUE (tenant_id, project_id, id);
"""
    + reference_of_tenants("billing_campaign")
)

BUDGETS = (
    protect("billing_budget", grants="SELECT, INSERT, UPDATE")
    + tenant_key("billing_budget", "project_id", "tenants_project")
    + tenant_key("billing_budget", "account_id", "billing_account")
    + reference_of_tenants("billing_budget")
    # Of accounts only that they are there: each hold changes their balances.
    + reference_of_tenants("billing_account", ("INSERT",))
    + """
ALTER TABLE billing_budget
  ADD CONSTRAINT billing_budget_campaign_id_in_project
    FOREIGN KEY (tenant_id, project_id, campaign_id)
    REFERENCES billing_campaign (tenant_id, project_id, id),
  ADD CONSTRAINT budget_periods_apart EXCLUDE USING gist (
    tenant_id WITH =,
    coalesce(project_id, '00000000-0000-0000-0000-000000000000') WITH =,
    coalesce(campaign_id, '00000000-0000-0000-0000-000000000000') WITH =,
    coalesce(person_id, 0) WITH =,
    daterange(starts, ends) WITH &&);
"""
)

# A new budget starts with what stands: holds and charges from before it.
STANDING = """
-- A new budget starts with what stands: holds and charges from before it.
CREATE FUNCTION billing_count_what_stands() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(NEW.tenant_id::text, 5));
  UPDATE billing_account a SET debits = m.debits, pending = m.pending
    FROM (SELECT sum(debits) AS debits, sum(pending) AS pending
          FROM billing_movement WHERE account_id = NEW.account_id) m
    WHERE a.id = NEW.account_id AND m.debits IS NOT NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER count_what_stands AFTER INSERT ON billing_budget
  FOR EACH ROW WHEN (NEW.level <> 'project') EXECUTE FUNCTION billing_count_what_stands();
""" + callable_by("billing_count_what_stands()", roles="")

# The ledger finds budgets by these; a change would leave balances that count something else.
PLACES = """
-- The ledger finds budgets by these; a change would leave balances that count something else.
CREATE FUNCTION billing_budget_keeps_its_place() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE EXCEPTION 'a budget keeps its level, owner and period' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER keeps_its_place BEFORE UPDATE ON billing_budget FOR EACH ROW
  WHEN ((OLD.tenant_id, OLD.account_id, OLD.level, OLD.project_id, OLD.campaign_id, OLD.person_id,
         OLD.starts, OLD.ends) IS DISTINCT FROM
        (NEW.tenant_id, NEW.account_id, NEW.level, NEW.project_id, NEW.campaign_id, NEW.person_id,
         NEW.starts, NEW.ends))
  EXECUTE FUNCTION billing_budget_keeps_its_place();
"""

GUARDRAILS = (
    protect("billing_guardrail")
    + tenant_key("billing_guardrail", "budget_id", "billing_budget")
    + reference_of_tenants("billing_guardrail")
)

SQL = CAMPAIGNS + BUDGETS + STANDING + PLACES + GUARDRAILS
