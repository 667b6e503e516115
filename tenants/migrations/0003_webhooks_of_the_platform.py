"""Webhooks that belong to the platform: their rows have no tenant, so no tenant's role sees them."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import callable_by

# Foreign keys with a tenant do not look at rows without one: this guards those, and only those.
SAME_OWNER = """
CREATE FUNCTION portal_delivery_of_platform() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM FROM tenants_webhook WHERE id = NEW.webhook_id AND tenant_id IS NULL FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'a delivery of the platform is for a webhook of the platform'
      USING ERRCODE = '23503';
  END IF;
  IF NEW.event_id IS NOT NULL THEN
    PERFORM FROM tenants_publishedevent
    WHERE id = NEW.event_id AND tenant_id IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a delivery of the platform is of an event of the platform'
        USING ERRCODE = '23503';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER of_platform BEFORE INSERT OR UPDATE OF tenant_id, webhook_id, event_id
  ON tenants_webhookdelivery FOR EACH ROW WHEN (NEW.tenant_id IS NULL)
  EXECUTE FUNCTION portal_delivery_of_platform();
""" + callable_by("portal_delivery_of_platform()", roles="")


def _tenant(help_text: str) -> models.Field:
    return models.ForeignKey(
        blank=True,
        help_text=help_text,
        null=True,
        on_delete=django.db.models.deletion.PROTECT,
        to="tenants.tenant",
    )


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_rules")]
    operations = [
        migrations.AlterField(
            "publishedevent", "tenant", _tenant("Null: for the platform's own webhooks.")
        ),
        migrations.AlterField(
            "webhook", "tenant", _tenant("Null: of the platform, for its operators only.")
        ),
        migrations.AlterField("webhookdelivery", "tenant", _tenant("That of the webhook.")),
        migrations.AddConstraint(
            "webhook",
            models.CheckConstraint(
                condition=models.Q(tenant__isnull=False)
                | models.Q(kind="webhook", project=None, labels={}),
                name="webhook_of_platform_is_plain",
            ),
        ),
        migrations.RunSQL(SAME_OWNER),
    ]
