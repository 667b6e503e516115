"""Labels: the rule that every table with labels has, and webhooks that only want some."""

from django.db import migrations, models

RULE = """
CREATE FUNCTION portal_labels_sane(labels jsonb) RETURNS boolean
IMMUTABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN jsonb_typeof(labels) <> 'object' THEN false ELSE (
    SELECT count(*) <= 32 AND coalesce(bool_and(
      key ~ '^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$'
      AND key NOT IN ('campaign', 'person', 'tier')
      AND jsonb_typeof(value) = 'string'
      AND char_length(value #>> '{}') BETWEEN 1 AND 100
      AND strpos(value #>> '{}', ',') = 0), true)
    FROM jsonb_each(labels)) END
$$;
ALTER TABLE tenants_webhook ADD CONSTRAINT webhook_labels_sane
  CHECK (labels = '{}' OR portal_labels_sane(labels));
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_second_factors")]
    operations = [
        migrations.AddField("webhook", "labels", models.JSONField(blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict, help_text="Events of bookings that have all of these labels; {}: all events.")),
        migrations.RunSQL(RULE),
    ]
