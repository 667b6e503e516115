"""Budgets of labs and of the platform, which the ledger counts as it counts those of tenants;
set-up fees, and the rung for the cheapest class.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import tenant_key

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
CREATE OR REPLACE VIEW billing_movement WITH (security_invoker = true) AS
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
"""

# The first lock is of the platform: a statement of any tenant takes it shared, a new budget of the
# platform takes it alone. The second is the same for a tenant. The accounts are locked from the top
# of the tree to its leaves, then by id, in the statement that changes them.
# The plan is made once for a session, by keys: a plan from a time with few rows would read all
# transfers for each one that is added, and a new plan each time costs more than the rest.
LEDGER = """
CREATE OR REPLACE FUNCTION billing_apply_transfers() RETURNS trigger
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

-- The balances of a budget above or below a project, from what stands.
CREATE FUNCTION billing_recount(account uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE billing_account a SET debits = m.debits, pending = m.pending
    FROM (SELECT coalesce(sum(debits), 0) AS debits, coalesce(sum(pending), 0) AS pending
          FROM billing_movement WHERE account_id = account) m
    WHERE a.id = account AND (a.debits, a.pending) IS DISTINCT FROM (m.debits, m.pending);
$$;
REVOKE EXECUTE ON FUNCTION billing_recount(uuid) FROM PUBLIC;

-- A new budget starts with what stands: holds and charges from before it.
CREATE OR REPLACE FUNCTION billing_count_what_stands() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(coalesce(NEW.tenant_id::text, 'platform'), 5));
  PERFORM billing_recount(NEW.account_id);
  RETURN NULL;
END $$;

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
REVOKE EXECUTE ON FUNCTION billing_project_moved() FROM PUBLIC;
CREATE TRIGGER moved_to_lab AFTER UPDATE OF lab_id ON tenants_project FOR EACH ROW
  WHEN (OLD.lab_id IS DISTINCT FROM NEW.lab_id) EXECUTE FUNCTION billing_project_moved();

DROP TRIGGER keeps_its_place ON billing_budget;
CREATE TRIGGER keeps_its_place BEFORE UPDATE ON billing_budget FOR EACH ROW
  WHEN ((OLD.tenant_id, OLD.account_id, OLD.level, OLD.project_id, OLD.campaign_id, OLD.person_id,
         OLD.lab_id, OLD.starts, OLD.ends) IS DISTINCT FROM
        (NEW.tenant_id, NEW.account_id, NEW.level, NEW.project_id, NEW.campaign_id, NEW.person_id,
         NEW.lab_id, NEW.starts, NEW.ends))
  EXECUTE FUNCTION billing_budget_keeps_its_place();

ALTER TABLE billing_budget DROP CONSTRAINT budget_periods_apart;
ALTER TABLE billing_budget ADD CONSTRAINT budget_periods_apart EXCLUDE USING gist (
  coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') WITH =,
  coalesce(lab_id, '00000000-0000-0000-0000-000000000000') WITH =,
  coalesce(project_id, '00000000-0000-0000-0000-000000000000') WITH =,
  coalesce(campaign_id, '00000000-0000-0000-0000-000000000000') WITH =,
  coalesce(person_id, 0) WITH =,
  daterange(starts, ends) WITH &&);

-- Only transfers between accounts of the platform have no tenant.
ALTER TABLE billing_transfer ADD CONSTRAINT transfer_of_platform_funds
  CHECK (tenant_id IS NOT NULL OR kind IN ('fund', 'reverse'));
"""

# Tenants don't see rows of the platform, but their holds are split at its periods, and its rungs
# restrain their bookings. These tell when and what, and no amount.
PLATFORM = """
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
REVOKE EXECUTE ON FUNCTION billing_platform_limits(), billing_platform_rungs() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_platform_limits(), billing_platform_rungs()
  TO portal_web, portal_system, portal_ops;
"""


ACTIONS = [
    ("notify", "Notify"),
    ("approval", "Ask for an approval of new bookings"),
    ("cheaper", "Finish waiting work on the cheapest of its classes"),
    ("no_borrowing", "Start nothing on borrowed GPUs"),
    ("no_bookings", "Take no new bookings"),
    ("drain", "Start nothing new"),
    ("pause", "Pause what runs, after its notice"),
]


def _nullable(model: str, help_text: str = "") -> migrations.AlterField:
    key = models.ForeignKey(
        blank=True,
        null=True,
        on_delete=django.db.models.deletion.PROTECT,
        to="tenants.tenant",
        help_text=help_text,
    )
    return migrations.AlterField(model, "tenant", key)


def _of(level: str, *named: str, tenant: bool = True) -> Q:
    others = ("project", "campaign", "person", "lab")
    owners = {f"{each}__isnull": each not in named for each in others}
    return Q(level=level, tenant__isnull=not tenant, **owners)


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_rules"), ("tenants", "0002_rules")]
    operations = [
        _nullable("account"),
        _nullable("transfer"),
        _nullable("guardrail"),
        _nullable("budget", "Null: of the platform."),
        migrations.AddField(
            "budget",
            "lab",
            models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.lab",
            ),
        ),
        migrations.AlterField(
            "budget",
            "level",
            models.CharField(
                choices=[
                    ("platform", "Platform"),
                    ("tenant", "Organisation"),
                    ("lab", "Lab"),
                    ("project", "Project"),
                    ("campaign", "Campaign"),
                    ("person", "Person"),
                ],
                db_default="project",
                default="project",
                max_length=8,
            ),
        ),
        migrations.RemoveConstraint("budget", "budget_level"),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=_of("platform", tenant=False)
                | _of("tenant")
                | _of("lab", "lab")
                | _of("project", "project")
                | _of("campaign", "project", "campaign")
                | _of("person", "project", "person"),
                name="budget_level",
            ),
        ),
        migrations.RemoveConstraint("account", "account_one_of_a_kind"),
        migrations.AddConstraint(
            "account",
            models.UniqueConstraint(
                condition=Q(kind__in=["source", "spend"]),
                fields=("tenant", "kind", "currency"),
                name="account_one_of_a_kind",
                nulls_distinct=False,
            ),
        ),
        migrations.AddField(
            "pricebook",
            "setup_fees",
            models.JSONField(
                db_default=models.Value({}, output_field=models.JSONField()),
                default=dict,
                help_text="What the first start of a booking costs, by tier; none: nothing.",
            ),
        ),
        migrations.AlterField(
            "transfer",
            "fee",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="What a charge is for that is for no GPU time: `late_share`, `no_show`, `setup`.",
                max_length=12,
            ),
        ),
        migrations.AlterField(
            "guardrail",
            "action",
            models.CharField(choices=ACTIONS, max_length=12),
        ),
        migrations.RemoveConstraint("guardrail", "guardrail_choices"),
        migrations.AddConstraint(
            "guardrail",
            models.CheckConstraint(
                condition=Q(measure__in=["spent", "committed", "forecast"])
                & Q(action__in=[value for value, _ in ACTIONS])
                & Q(audience__in=["leads", "admins", "both"]),
                name="guardrail_choices",
            ),
        ),
        migrations.RunSQL(
            MOVEMENTS + LEDGER + PLATFORM + tenant_key("billing_budget", "lab_id", "tenants_lab")
        ),
    ]
