"""Quota as guaranteed, borrowed and lent; GPU-hour caps; tiers that do not count.

Expand only: the old column `limit_units` stays behind and follows the new ones by a trigger, so
that the release before this one goes on working beside it. A later migration drops both.
"""

from django.db import migrations, models

FILL = """
UPDATE tenants_quota SET borrow_limit_units = limit_units - guaranteed_units
  WHERE limit_units IS NOT NULL;
"""

FOLLOW = """
CREATE FUNCTION quota_limit_follows() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF (TG_OP = 'INSERT' AND NEW.limit_units IS NOT NULL)
     OR (TG_OP = 'UPDATE' AND NEW.limit_units IS DISTINCT FROM OLD.limit_units) THEN
    -- Written by the release before: it knows no borrow limit.
    NEW.borrow_limit_units := NEW.limit_units - NEW.guaranteed_units;
  ELSE
    NEW.limit_units := NEW.guaranteed_units + NEW.borrow_limit_units;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER quota_limit_follows BEFORE INSERT OR UPDATE ON tenants_quota
  FOR EACH ROW EXECUTE FUNCTION quota_limit_follows();
"""

# What others leave idle is what a quote may count on: one sum per class, nobody's own numbers.
LENDERS = """
CREATE FUNCTION portal_lenders()
RETURNS TABLE (gpu_class text, guaranteed numeric, lent numeric)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT q.gpu_class_id, sum(q.guaranteed_units),
         sum(least(q.guaranteed_units, coalesce(q.lend_limit_units, q.guaranteed_units)))
  FROM tenants_quota q
  WHERE q.project_id IS NULL
    AND q.tenant_id IS DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid
  GROUP BY q.gpu_class_id
$$;
REVOKE EXECUTE ON FUNCTION portal_lenders() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_lenders() TO portal_web, portal_system, portal_ops;
"""

CAP_FITS = (
    models.Q(cap_gpu_hours=None, cap_days=None, cap_carries=False)
    | models.Q(cap_gpu_hours__gt=0, cap_days=None)
    | models.Q(cap_gpu_hours__gt=0, cap_days__gte=1, cap_days__lte=31, cap_carries=False)
)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_wall")]
    operations = [
        migrations.AddField(
            "tier",
            "counts_against_guarantee",
            models.BooleanField(db_default=True, default=True),
        ),
        migrations.AddConstraint(
            "tier",
            models.CheckConstraint(
                condition=models.Q(counts_against_guarantee=True) | models.Q(pausable=True),
                name="tier_never_paused_counts",
            ),
        ),
        migrations.AddField(
            "quota", "borrow_limit_units", models.BigIntegerField(null=True, blank=True)
        ),
        migrations.AddField(
            "quota", "lend_limit_units", models.BigIntegerField(null=True, blank=True)
        ),
        migrations.AddField(
            "quota", "weight", models.PositiveSmallIntegerField(db_default=1, default=1)
        ),
        migrations.AddField(
            "quota", "cap_gpu_hours", models.PositiveIntegerField(null=True, blank=True)
        ),
        migrations.AddField(
            "quota", "cap_days", models.PositiveSmallIntegerField(null=True, blank=True)
        ),
        migrations.AddField(
            "quota", "cap_carries", models.BooleanField(db_default=False, default=False)
        ),
        migrations.RunSQL(FILL),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint("quota", "quota_limit_covers_guarantee"),
                migrations.RemoveField("quota", "limit_units"),
            ]
        ),
        migrations.AddConstraint(
            "quota",
            models.CheckConstraint(
                condition=models.Q(guaranteed_units__gte=0)
                & (models.Q(borrow_limit_units=None) | models.Q(borrow_limit_units__gte=0))
                & (models.Q(lend_limit_units=None) | models.Q(lend_limit_units__gte=0)),
                name="quota_never_negative",
            ),
        ),
        migrations.AddConstraint(
            "quota",
            models.CheckConstraint(condition=models.Q(weight__lte=1000), name="quota_weight_sane"),
        ),
        migrations.AddConstraint(
            "quota", models.CheckConstraint(condition=CAP_FITS, name="quota_cap_fits")
        ),
        migrations.RunSQL(FOLLOW),
        migrations.RunSQL(LENDERS),
    ]
