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
    + tenant_key("billing_budget", "lab_id", "tenants_lab")
    + reference_of_tenants("billing_budget")
    # Of accounts only that they are there: each hold changes their balances.
    + reference_of_tenants("billing_account", ("INSERT",))
    + """
ALTER TABLE billing_budget
  ADD CONSTRAINT billing_budget_campaign_id_in_project
    FOREIGN KEY (tenant_id, project_id, campaign_id)
    REFERENCES billing_campaign (tenant_id, project_id, id),
  ADD CONSTRAINT budget_periods_apart EXCLUDE USING gist (
    coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') WITH =,
    coalesce(lab_id, '00000000-0000-0000-0000-000000000000') WITH =,
    coalesce(project_id, '00000000-0000-0000-0000-000000000000') WITH =,
    coalesce(campaign_id, '00000000-0000-0000-0000-000000000000') WITH =,
    coalesce(person_id, 0) WITH =,
    daterange(starts, ends) WITH &&);
"""
)

STANDING = (
    """
-- The balances of a budget above or below a project, from what stands.
CREATE FUNCTION billing_recount(account uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE billing_account a SET debits = m.debits, pending = m.pending
    FROM (SELECT coalesce(sum(debits), 0) AS debits, coalesce(sum(pending), 0) AS pending
          FROM billing_movement WHERE account_id = account) m
    WHERE a.id = account AND (a.debits, a.pending) IS DISTINCT FROM (m.debits, m.pending);
$$;

-- A new budget starts with what stands: holds and charges from before it.
CREATE FUNCTION billing_count_what_stands() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(coalesce(NEW.tenant_id::text, 'platform'), 5));
  PERFORM billing_recount(NEW.account_id);
  RETURN NULL;
END $$;
CREATE TRIGGER count_what_stands AFTER INSERT ON billing_budget
  FOR EACH ROW WHEN (NEW.level <> 'project') EXECUTE FUNCTION billing_count_what_stands();

-- A project brings what it has spent and held to the budgets of its lab.
CREATE FUNCTION billing_project_moved() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(NEW.tenant_id::text, 5));
  PERFORM billing_recount(account_id) FROM (
    SELECT account_id FROM billing_budget
    WHERE tenant_id = NEW.tenant_id AND lab_id IN (OLD.lab_id, NEW.lab_id) ORDER BY account_id
  ) AS budgets;
  RETURN NULL;
END $$;
CREATE TRIGGER moved_to_lab AFTER UPDATE OF lab_id ON tenants_project FOR EACH ROW
  WHEN (OLD.lab_id IS DISTINCT FROM NEW.lab_id) EXECUTE FUNCTION billing_project_moved();
"""
    + callable_by("billing_recount(uuid)", roles="")
    + callable_by("billing_count_what_stands()", roles="")
    + callable_by("billing_project_moved()", roles="")
)

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
         OLD.lab_id, OLD.starts, OLD.ends) IS DISTINCT FROM
        (NEW.tenant_id, NEW.account_id, NEW.level, NEW.project_id, NEW.campaign_id, NEW.person_id,
         NEW.lab_id, NEW.starts, NEW.ends))
  EXECUTE FUNCTION billing_budget_keeps_its_place();
"""

GUARDRAILS = (
    protect("billing_guardrail")
    + tenant_key("billing_guardrail", "budget_id", "billing_budget")
    + reference_of_tenants("billing_guardrail")
)

# Tenants don't see rows of the platform, but their holds are split at its periods, and its rungs
# restrain their bookings. These tell when and what, and no amount.
PLATFORM = (
    """
CREATE FUNCTION billing_platform_limits()
RETURNS TABLE (id uuid, account_id uuid, starts date, ends date)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT id, account_id, starts, ends FROM billing_budget WHERE tenant_id IS NULL;
$$;
CREATE FUNCTION billing_platform_rungs()
RETURNS TABLE (id uuid, budget_id uuid, measure text, percent int, action text,
               reached_at timestamptz, starts date, ends date)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT g.id, b.id, g.measure, g.percent, g.action, g.reached_at, b.starts, b.ends
  FROM billing_guardrail g JOIN billing_budget b ON b.id = g.budget_id
  WHERE b.tenant_id IS NULL ORDER BY g.percent, g.measure, g.action;
$$;
"""
    + callable_by("billing_platform_limits()", roles="portal_web, portal_system, portal_ops")
    + callable_by("billing_platform_rungs()", roles="portal_web, portal_system, portal_ops")
)

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

SQL = CAMPAIGNS + BUDGETS + STANDING + PLACES + GUARDRAILS + PLATFORM + RUNGS_UNREACHED
