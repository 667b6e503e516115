"""What of a booking is borrowed, from when on it is at risk, and who waits to have it back."""

from django.db import migrations, models

# Within guarantee and waiting for room: from then on what is borrowed of the class is at risk.
CLAIMS = """
CREATE FUNCTION portal_claims(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_class text, period_start timestamptz, period_end timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT b.planned_class, b.reclaims_from, b.reclaims_from + b.duration_seconds * interval '1 second'
  FROM allocation_booking b
  WHERE b.state = 'queued' AND b.reclaims_from < until
    AND b.reclaims_from + b.duration_seconds * interval '1 second' > since
    AND b.tenant_id IS DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid
$$;
REVOKE EXECUTE ON FUNCTION portal_claims(timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_claims(timestamptz, timestamptz)
  TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0003_first_policy")]
    operations = [
        migrations.AddField(
            "booking", "borrowed_units", models.BigIntegerField(db_default=0, default=0)
        ),
        migrations.AddField("booking", "at_risk_from", models.DateTimeField(null=True, blank=True)),
        migrations.AddField("booking", "reclaims_from", models.DateTimeField(null=True, blank=True)),
        migrations.RunSQL(CLAIMS),
    ]
