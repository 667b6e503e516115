"""Budgets of organisations, campaigns and people, which the ledger counts beside those of projects."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import protect, tenant_key

# What each transfer changes in each budget account. The second half are the budgets of other
# levels: those of the tenant, of the campaign and of the person that hold on the transfer's day.
MOVEMENTS = """
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
SELECT t.id, other.account_id, 0::numeric,
       CASE t.kind WHEN 'reverse' THEN -t.amount WHEN 'settle' THEN t.amount
         WHEN 'charge' THEN t.amount ELSE 0 END,
       CASE WHEN t.kind = 'hold' THEN t.amount ELSE -coalesce(h.amount, 0) END
  FROM billing_transfer t
  JOIN billing_budget own
    ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
  JOIN billing_budget other
    ON other.tenant_id = t.tenant_id AND other.level <> 'project'
    AND other.starts <= t.day AND t.day < other.ends
    AND (other.project_id IS NULL OR other.project_id = own.project_id)
    AND (other.campaign_id IS NULL OR other.campaign_id = t.campaign_id)
    AND (other.person_id IS NULL OR other.person_id = t.person_id)
  LEFT JOIN billing_transfer h ON h.id = t.hold_id
  WHERE t.day IS NOT NULL;
GRANT SELECT ON billing_movement TO portal_system, portal_ops;
"""

# Accounts are locked from the top of the tree to its leaves, then by id: a transaction of several
# statements waits at its first account, before it has any other. The shared lock keeps a new
# budget from counting what stands while this statement adds to it.
LEDGER = """
DROP TRIGGER apply_transfer ON billing_transfer;
DROP FUNCTION billing_apply_transfer();
CREATE FUNCTION billing_apply_transfers() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtextextended(tenant::text, 5))
    FROM (SELECT DISTINCT tenant_id AS tenant FROM added ORDER BY 1) AS tenants;
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
  PERFORM FROM billing_account a JOIN billing_budget b ON b.account_id = a.id
    WHERE a.id IN (SELECT m.account_id FROM billing_movement m
                   WHERE m.transfer_id IN (SELECT id FROM added))
    ORDER BY array_position(ARRAY['tenant', 'project', 'campaign', 'person'], b.level::text), a.id
    FOR NO KEY UPDATE OF a;
  UPDATE billing_account a
    SET credits = a.credits + m.credits, debits = a.debits + m.debits,
        pending = a.pending + m.pending
    FROM (SELECT account_id, sum(credits) AS credits, sum(debits) AS debits,
                 sum(pending) AS pending
          FROM billing_movement WHERE transfer_id IN (SELECT id FROM added)
          GROUP BY account_id) m
    WHERE a.id = m.account_id;
  RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_apply_transfers() FROM PUBLIC;
CREATE TRIGGER apply_transfers AFTER INSERT ON billing_transfer
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_apply_transfers();

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
REVOKE EXECUTE ON FUNCTION billing_count_what_stands() FROM PUBLIC;
CREATE TRIGGER count_what_stands AFTER INSERT ON billing_budget
  FOR EACH ROW WHEN (NEW.level <> 'project') EXECUTE FUNCTION billing_count_what_stands();

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

ALTER TABLE billing_budget DROP CONSTRAINT budget_periods_apart;
ALTER TABLE billing_budget ADD CONSTRAINT budget_periods_apart EXCLUDE USING gist (
  tenant_id WITH =,
  coalesce(project_id, '00000000-0000-0000-0000-000000000000') WITH =,
  coalesce(campaign_id, '00000000-0000-0000-0000-000000000000') WITH =,
  coalesce(person_id, 0) WITH =,
  daterange(starts, ends) WITH &&);

ALTER TABLE billing_transfer DISABLE TRIGGER append_only;
UPDATE billing_transfer t SET day = b.starts FROM billing_budget b
  WHERE (t.kind IN ('hold', 'settle', 'release', 'charge') AND b.account_id = t.debit_id)
     OR (t.kind = 'reverse' AND t.reference IS NOT NULL AND b.account_id = t.credit_id);
ALTER TABLE billing_transfer ENABLE TRIGGER append_only;

GRANT UPDATE (limited) ON billing_account TO portal_web;
"""

WALL = "\n".join(
    [
        protect("billing_campaign", grants="SELECT, INSERT, UPDATE"),
        tenant_key("billing_campaign", "project_id", "tenants_project"),
        tenant_key("billing_transfer", "campaign_id", "billing_campaign"),
    ]
)
WALL += """
ALTER TABLE billing_campaign
  ADD CONSTRAINT campaign_id_in_project UNIQUE (tenant_id, project_id, id);
ALTER TABLE billing_budget ADD CONSTRAINT billing_budget_campaign_id_in_project
  FOREIGN KEY (tenant_id, project_id, campaign_id)
  REFERENCES billing_campaign (tenant_id, project_id, id);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0002_ledger"),
        ("tenants", "0002_wall"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="Campaign",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("slug", models.SlugField(max_length=40)),
                ("name", models.CharField(max_length=80)),
                ("is_open", models.BooleanField(default=True, help_text="Whether new bookings can use it.")),
                ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
            ],
            options={
                "ordering": ["name", "id"],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="campaign_id_in_tenant"),
                    models.UniqueConstraint(fields=("project", "slug"), name="campaign_slug_in_project"),
                ],
            },
        ),
        migrations.AddField("transfer", "day", models.DateField(blank=True, help_text="UTC day by which the budgets of other levels count it.", null=True)),
        migrations.AddField("transfer", "person", models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
        migrations.AddField("transfer", "campaign", models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="billing.campaign")),
        migrations.AddField("budget", "level", models.CharField(choices=[("tenant", "Organisation"), ("project", "Project"), ("campaign", "Campaign"), ("person", "Person")], db_default="project", default="project", max_length=8)),
        migrations.AlterField("budget", "project", models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
        migrations.AddField("budget", "campaign", models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="billing.campaign")),
        migrations.AddField("budget", "person", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
        migrations.AddField("budget", "repeat_amount", models.DecimalField(blank=True, decimal_places=6, help_text="The next period gets a budget of this amount.", max_digits=20, null=True)),
        migrations.AddField("budget", "rolls_over", models.BooleanField(db_default=False, default=False, help_text="What is left when the period ends is added to the next one.")),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=Q(campaign=None, level="tenant", person=None, project=None)
                | Q(campaign=None, level="project", person=None, project__isnull=False)
                | Q(campaign__isnull=False, level="campaign", person=None, project__isnull=False)
                | Q(campaign=None, level="person", person__isnull=False, project__isnull=False),
                name="budget_level",
            ),
        ),
        migrations.RunSQL(MOVEMENTS + LEDGER + WALL),
    ]
