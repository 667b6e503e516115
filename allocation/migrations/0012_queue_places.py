"""Places in the queue, and how many are ahead of a booking by which key of the order.

The keys of other tenants' bookings stay inside the database: the function counts them.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import system_table

AHEAD = """
CREATE FUNCTION portal_queue_ahead(mine uuid, keys text[])
RETURNS TABLE (own boolean, number bigint, differs_at integer, band bigint, strength text,
               fixed boolean, bookings bigint)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH me AS (
    SELECT b.id, b.tenant_id, b.project_id, b.owner_id, b.planned_ends, b.ask, p.key
    FROM allocation_booking b JOIN allocation_queueplace p ON p.booking_id = b.id
    WHERE b.id = mine AND b.tenant_id = nullif(current_setting('portal.tenant', true), '')::uuid
  ), ahead AS (
    SELECT b.tenant_id = me.tenant_id AS own, b.number, b.planned_strength,
           b.starts IS NOT NULL AS fixed, p.key,
           (SELECT min(i) FROM generate_subscripts(p.key, 1) i
            WHERE p.key[i] <> me.key[i] AND CASE keys[i - 1]
              WHEN 'tenant' THEN b.tenant_id <> me.tenant_id
              WHEN 'person' THEN (b.tenant_id, b.owner_id) <> (me.tenant_id, me.owner_id)
              WHEN 'project' THEN b.project_id <> me.project_id
              WHEN 'part' THEN b.project_id <> me.project_id
              ELSE true END)::integer AS differs_at
    FROM me JOIN allocation_queueplace p ON (p.key, p.booking_id) < (me.key, me.id)
    JOIN allocation_booking b ON b.id = p.booking_id
    WHERE b.state IN ('queued', 'pausing', 'paused') AND me.ask->'classes' ? b.planned_class
      AND b.planned_starts < me.planned_ends
  )
  SELECT own, CASE WHEN own THEN number END, differs_at, key[1], planned_strength, fixed, count(*)
  FROM ahead GROUP BY 1, 2, 3, 4, 5, 6
$$;
REVOKE EXECUTE ON FUNCTION portal_queue_ahead(uuid, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_queue_ahead(uuid, text[]) TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0011_labels"),
    ]

    operations = [
        migrations.CreateModel(
            name='QueuePlace',
            fields=[
                ('booking', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='allocation.booking')),
                ('key', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), help_text='As `Waiting.key` has it; of two, the lower goes first.', size=None)),
            ],
        ),
        migrations.RunSQL(system_table("allocation_queueplace") + AHEAD),
    ]
