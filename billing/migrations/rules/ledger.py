"""The ledger: append-only transfers, balances by trigger, bounded corrections, closed months."""

from tenants.platform.wall import append_only, callable_by, protect, tenant_key

# A web process creates accounts and limits them; triggers alone change their balances.
ACCOUNTS = (
    protect("billing_account", grants="SELECT, INSERT, UPDATE (limited)")
    + """
ALTER TABLE billing_account ADD CONSTRAINT account_currency_once UNIQUE (id, currency);
"""
)
TRANSFERS = (
    protect("billing_transfer", grants="SELECT, INSERT")
    + tenant_key("billing_transfer", "debit_id", "billing_account")
    + tenant_key("billing_transfer", "credit_id", "billing_account")
    + tenant_key("billing_transfer", "hold_id", "billing_transfer")
    + tenant_key("billing_transfer", "campaign_id", "billing_campaign")
    + append_only("billing_transfer")
    + """
-- Only transfers between accounts of the platform have no tenant.
ALTER TABLE billing_transfer ADD CONSTRAINT transfer_of_platform_funds
  CHECK (tenant_id IS NOT NULL OR kind IN ('fund', 'reverse'));
"""
)

# What each transfer changes in each budget account. The last two parts are the budgets of other
# levels that hold on the transfer's day: those of its tenant, and those of the platform.
CHANGE = """0::numeric,
       CASE t.kind WHEN 'reverse' THEN -t.amount WHEN 'settle' THEN t.amount
         WHEN 'charge' THEN t.amount ELSE 0 END,
       CASE WHEN t.kind = 'hold' THEN t.amount ELSE -coalesce(h.amount, 0) END
  FROM billing_transfer t
  JOIN billing_budget own
    ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END"""
MOVEMENTS = f"""
CREATE VIEW billing_movement WITH (security_invoker = true) AS
SELECT t.id AS transfer_id, t.credit_id AS account_id,
       t.amount AS credits, 0::numeric AS debits, 0::numeric AS pending
  FROM billing_transfer t JOIN billing_budget b ON b.account_id = t.credit_id
  WHERE t.kind IN ('fund', 'reverse', 'charge')
UNION ALL
SELECT t.id, t.debit_id, 0::numeric,
       CASE WHEN t.kind IN ('hold', 'release') THEN 0 ELSE t.amount END,
       CASE WHEN t.kind = 'hold' THEN t.amount ELSE -coalesce(h.amount, 0) END
  FROM billing_transfer t
  JOIN billing_budget b ON b.account_id = t.debit_id
  LEFT JOIN billing_transfer h ON h.id = t.hold_id
UNION ALL
SELECT t.id, other.account_id, {CHANGE}
  JOIN billing_budget other
    ON other.tenant_id = t.tenant_id AND other.level <> 'project'
    AND other.starts <= t.day AND t.day < other.ends
    AND (other.project_id IS NULL OR other.project_id = own.project_id)
    AND (other.campaign_id IS NULL OR other.campaign_id = t.campaign_id)
    AND (other.person_id IS NULL OR other.person_id = t.person_id)
    AND (other.lab_id IS NULL OR other.lab_id =
         (SELECT p.lab_id FROM tenants_project p WHERE p.id = own.project_id))
  LEFT JOIN billing_transfer h ON h.id = t.hold_id
  WHERE t.day IS NOT NULL
UNION ALL
SELECT t.id, other.account_id, {CHANGE}
  JOIN billing_budget other
    ON other.tenant_id IS NULL AND other.starts <= t.day AND t.day < other.ends
  LEFT JOIN billing_transfer h ON h.id = t.hold_id
  WHERE t.day IS NOT NULL;
GRANT SELECT ON billing_movement TO portal_system, portal_ops;
"""

# AFTER INSERT, never BEFORE: a BEFORE trigger also runs for a row that ON CONFLICT DO NOTHING
# drops, and would count a repeated hold twice. Only budget accounts keep a running balance:
# otherwise all bookings of a tenant would queue for its one `spend` row.
#
# The first lock is of the platform: a statement of any tenant takes it shared, a new budget of the
# platform takes it alone. The second is the same for a tenant. The accounts are locked from the top
# of the tree to its leaves, then by id, in the statement that changes them.
# The plan is made once for a session, by keys: a plan from a time with few rows would read all
# transfers for each one that is added, and a new plan each time costs more than the rest.
BALANCES = """
CREATE FUNCTION billing_apply_transfers() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  ids uuid[] := ARRAY(SELECT id FROM added);
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('platform', 5));
  PERFORM pg_advisory_xact_lock_shared(hashtextextended(tenant::text, 5))
    FROM (SELECT DISTINCT tenant_id AS tenant FROM added WHERE tenant_id IS NOT NULL ORDER BY 1)
      AS tenants;
  IF EXISTS (
    SELECT FROM added a LEFT JOIN billing_transfer h ON h.id = a.hold_id
    WHERE a.kind IN ('settle', 'release') AND (
      h.kind IS DISTINCT FROM 'hold' OR h.debit_id <> a.debit_id OR h.credit_id <> a.credit_id
      OR a.amount > h.amount OR h.tenant_id <> a.tenant_id
      OR (h.reference, h.day, h.person_id, h.campaign_id)
        IS DISTINCT FROM (a.reference, a.day, a.person_id, a.campaign_id))) THEN
    RAISE EXCEPTION 'transfer does not end its hold' USING ERRCODE = '23514';
  END IF;
  IF EXISTS (
    SELECT FROM added a
    LEFT JOIN billing_budget own
      ON own.account_id = CASE a.kind WHEN 'reverse' THEN a.credit_id ELSE a.debit_id END
    LEFT JOIN billing_account spend ON spend.id = a.debit_id AND spend.kind = 'spend'
    WHERE (a.kind IN ('hold', 'charge') OR (a.kind = 'reverse' AND spend.id IS NOT NULL))
      AND (own.level IS DISTINCT FROM 'project' OR a.day IS NULL
           OR a.day < own.starts OR a.day >= own.ends)) THEN
    RAISE EXCEPTION 'transfer has a day outside its budget'
      USING ERRCODE = '23514', CONSTRAINT = 'transfer_day_in_budget';
  END IF;
  WITH m AS MATERIALIZED (
    SELECT account_id, sum(credits) AS credits, sum(debits) AS debits, sum(pending) AS pending
    FROM billing_movement WHERE transfer_id = ANY (ids)
    GROUP BY account_id
  ), locked AS MATERIALIZED (
    SELECT a.id FROM billing_account a JOIN billing_budget b ON b.account_id = a.id
    WHERE a.id IN (SELECT account_id FROM m)
    ORDER BY array_position(
      ARRAY['platform', 'tenant', 'lab', 'project', 'campaign', 'person'], b.level::text), a.id
    FOR NO KEY UPDATE OF a
  )
  UPDATE billing_account a
    SET credits = a.credits + m.credits, debits = a.debits + m.debits,
        pending = a.pending + m.pending
    FROM m JOIN locked ON locked.id = m.account_id
    WHERE a.id = m.account_id;
  RETURN NULL;
END $$;
CREATE TRIGGER apply_transfers AFTER INSERT ON billing_transfer
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_apply_transfers();
""" + callable_by("billing_apply_transfers()", roles="")

# A correction moves money between a budget and `spend`, for a reference. Corrections of one
# reference are serialised, so that two refunds at once can't return more than was charged.
CORRECTIONS = (
    """
CREATE FUNCTION billing_is_correction(kind text, debit uuid) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT kind = 'charge' OR (kind = 'reverse' AND EXISTS (
    SELECT FROM billing_account a WHERE a.id = debit AND a.kind = 'spend'))
$$;
CREATE FUNCTION billing_correction_by_operators() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE EXCEPTION 'charges are corrected by operators' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER correction_1_by_operators BEFORE INSERT ON billing_transfer FOR EACH ROW
  WHEN (NEW.kind IN ('charge', 'reverse') AND current_user = 'portal_web'
        AND billing_is_correction(NEW.kind, NEW.debit_id))
  EXECUTE FUNCTION billing_correction_by_operators();
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
CREATE TRIGGER correction_2_bounded BEFORE INSERT ON billing_transfer FOR EACH ROW
  WHEN (NEW.kind IN ('charge', 'reverse') AND billing_is_correction(NEW.kind, NEW.debit_id))
  EXECUTE FUNCTION billing_correction_bounded();
-- A refund of a fee is of at most what was charged as it.
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
"""
    + callable_by("billing_is_correction(text, uuid)")
    + callable_by("billing_correction_bounded()", roles="")
    + callable_by("billing_fee_refund_bounded()", roles="")
)

# No transfer is booked into a closed month. The trigger fires after `apply_transfers`, which has
# waited for a month that is being closed.
MONTHS = (
    protect("billing_closedmonth", grants="SELECT, INSERT")
    + append_only("billing_closedmonth")
    + """
CREATE FUNCTION billing_month_is_open() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (
    SELECT FROM added a JOIN billing_closedmonth c ON c.tenant_id = a.tenant_id
      AND (a.at AT TIME ZONE 'UTC')::date >= c.starts
      AND (a.at AT TIME ZONE 'UTC')::date < c.ends) THEN
    RAISE EXCEPTION 'the month is closed'
      USING ERRCODE = '23514', CONSTRAINT = 'transfer_month_open';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER month_is_open AFTER INSERT ON billing_transfer
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_month_is_open();
"""
    + callable_by("billing_month_is_open()", roles="")
)

# `round` rounds halves away from zero, a statement's lines round them to the even cent.
CENTS = """
CREATE FUNCTION billing_cents(amount numeric) RETURNS numeric
IMMUTABLE LANGUAGE sql SET search_path = pg_catalog AS $$
  SELECT CASE WHEN abs(amount * 100 - trunc(amount * 100)) = 0.5
    THEN round(round(amount * 50) / 50, 2) ELSE round(amount, 2) END
$$;
"""

SQL = ACCOUNTS + TRANSFERS + MOVEMENTS + BALANCES + CORRECTIONS + MONTHS + CENTS
