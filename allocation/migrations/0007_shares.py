"""Shares of GPUs: never more than a whole one at any instant, and never beside whole or sliced."""

from django.db import migrations, models
from django.db.models import Q

LIVE = "state IN ('planned', 'starting', 'active', 'releasing')"

# A share covers the GPU's whole stretch, so slots can't keep shares apart; the triggers do. Adding
# a constraint again takes the table's lock; nothing is read twice by a running release.
EXCLUSION = f"""
ALTER TABLE allocation_allocation
  DROP CONSTRAINT allocation_no_double_booking,
  ADD CONSTRAINT allocation_no_double_booking
    EXCLUDE USING gist (slots WITH &&, period WITH &&) WHERE ({LIVE} AND mode <> 'shared');
ALTER TABLE allocation_occupancy
  DROP CONSTRAINT occupancy_once_on_hardware,
  ADD CONSTRAINT occupancy_once_on_hardware
    EXCLUDE USING gist (slots WITH &&) WHERE (closed IS NULL AND share IS NULL),
  ADD CONSTRAINT occupancy_one_mode
    EXCLUDE USING gist (gpu_id WITH =, ((share IS NULL)::int) WITH <>) WHERE (closed IS NULL);
CREATE INDEX allocation_shares ON allocation_allocation USING gist (gpu_number, period)
  WHERE ({LIVE} AND mode = 'shared');
"""

# The GPU's row is the lock. A row that does not fit is left out when it is inserted, as
# ON CONFLICT DO NOTHING leaves out what an exclusion constraint forbids, and callers count; an
# update that does not fit is an error. The owner sees every tenant's rows.
SUMS = f"""
CREATE FUNCTION allocation_shares_fit() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE most bigint;
BEGIN
  PERFORM FROM allocation_gpu WHERE id = NEW.gpu_id FOR NO KEY UPDATE;
  -- The most at any instant is the most at one of the begins.
  SELECT max(taken) INTO most FROM (
    SELECT sum(b.share) AS taken
    FROM (SELECT lower(NEW.period) AS at UNION
          SELECT lower(period) FROM allocation_allocation
          WHERE gpu_number = NEW.gpu_number AND mode = 'shared' AND {LIVE}
            AND period && NEW.period AND lower(period) > lower(NEW.period)) begins
    JOIN allocation_allocation b
      ON b.gpu_number = NEW.gpu_number AND b.mode = 'shared' AND b.{LIVE}
         AND b.period @> begins.at AND b.id <> NEW.id
    GROUP BY begins.at) instants;
  IF coalesce(most, 0) + NEW.share <= 1000 THEN
    RETURN NEW;
  ELSIF TG_OP = 'INSERT' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'shares of GPU % exceed the whole', NEW.gpu_number
    USING ERRCODE = '23P01', CONSTRAINT = 'allocation_shares_fit';
END $$;
CREATE TRIGGER shares_fit BEFORE INSERT OR UPDATE OF state, period, share, mode, gpu_number, gpu_id
  ON allocation_allocation FOR EACH ROW
  WHEN (NEW.mode = 'shared' AND NEW.{LIVE}) EXECUTE FUNCTION allocation_shares_fit();
CREATE FUNCTION occupancy_shares_fit() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE taken bigint;
BEGIN
  PERFORM FROM allocation_gpu WHERE id = NEW.gpu_id FOR NO KEY UPDATE;
  SELECT sum(share) INTO taken FROM allocation_occupancy
    WHERE gpu_id = NEW.gpu_id AND closed IS NULL AND id <> NEW.id;
  IF coalesce(taken, 0) + NEW.share <= 1000 THEN
    RETURN NEW;
  ELSIF TG_OP = 'INSERT' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'more than a whole GPU is in use in shares'
    USING ERRCODE = '23P01', CONSTRAINT = 'occupancy_shares_fit';
END $$;
CREATE TRIGGER shares_fit BEFORE INSERT OR UPDATE OF closed, share, gpu_id
  ON allocation_occupancy FOR EACH ROW
  WHEN (NEW.share IS NOT NULL AND NEW.closed IS NULL) EXECUTE FUNCTION occupancy_shares_fit();
"""

# What is taken, for quotes: who has it is not told, how much of it is.
TAKEN = f"""
CREATE FUNCTION portal_taken(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, profile text, start smallint, size smallint, share smallint,
               cores bigint, memory bigint, period_start timestamptz, period_end timestamptz,
               mine boolean, promised boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.gpu_id, CASE WHEN a.profile IS NULL THEN NULL ELSE 'busy' END, a.start, a.size, a.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         lower(a.period), upper(a.period),
         a.tenant_id IS NOT DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid,
         false
  FROM allocation_allocation a JOIN allocation_booking b ON b.id = a.booking_id
  WHERE a.{LIVE} AND a.period && tstzrange(since, until)
  UNION ALL
  SELECT p.gpu, CASE WHEN p.profile IS NULL THEN NULL ELSE 'busy' END, p.start, p.size, p.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         b.planned_starts, b.planned_ends,
         b.tenant_id IS NOT DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid,
         true
  FROM allocation_booking b, jsonb_to_recordset(b.planned_places)
       AS p(gpu uuid, profile text, start smallint, size smallint, share smallint)
  WHERE b.state = 'queued' AND b.planned_starts < until AND b.planned_ends > since
$$;
CREATE OR REPLACE FUNCTION portal_promised(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, mode text, start smallint, size smallint,
               period_start timestamptz, period_end timestamptz, mine boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT p.gpu,
         CASE WHEN p.share IS NOT NULL THEN 'shared'
              WHEN p.profile IS NULL THEN 'whole' ELSE 'sliced' END, p.start, p.size,
         b.planned_starts, b.planned_ends,
         b.tenant_id = nullif(current_setting('portal.tenant', true), '')::uuid
  FROM allocation_booking b, jsonb_to_recordset(b.planned_places)
       AS p(gpu uuid, profile text, start smallint, size smallint, share smallint)
  WHERE b.state = 'queued' AND b.planned_starts < until AND b.planned_ends > since
$$;
REVOKE EXECUTE ON FUNCTION portal_taken(timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_taken(timestamptz, timestamptz)
  TO portal_web, portal_system, portal_ops;
"""

MODES = [("whole", "Whole"), ("sliced", "Sliced"), ("shared", "Shared")]


class Migration(migrations.Migration):
    dependencies = [("allocation", "0006_protocol")]
    operations = [
        migrations.AddField(
            "allocation", "share", models.PositiveSmallIntegerField(null=True, blank=True)
        ),
        migrations.AddField(
            "occupancy", "share", models.PositiveSmallIntegerField(null=True, blank=True)
        ),
        migrations.AlterField("allocation", "mode", models.CharField(max_length=8, choices=MODES)),
        migrations.AlterField(
            "gpu", "mode", models.CharField(max_length=8, choices=MODES, default="whole")
        ),
        migrations.RemoveConstraint("allocation", "allocation_mode_fits"),
        migrations.AddConstraint(
            "allocation",
            models.CheckConstraint(
                condition=Q(mode="whole", profile=None, start=0, size=8, share=None)
                | Q(mode="sliced", profile__isnull=False, share=None)
                | Q(mode="shared", profile=None, start=0, size=8, share__gte=1, share__lte=999),
                name="allocation_mode_fits",
            ),
        ),
        migrations.RunSQL(EXCLUSION),
        migrations.RunSQL(SUMS),
        migrations.RunSQL(TAKEN),
    ]
