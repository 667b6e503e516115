"""Labels and references of bookings and series, and an index of labels.

The operators of jsonb are not leakproof, so an index of the column can't be used behind row-level
security. Triggers keep a table of all labels of bookings, which an index of plain text finds.
"""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import protect

INDEX = (
    """
ALTER TABLE allocation_booking ADD CONSTRAINT booking_labels_sane
  CHECK (labels = '{}' OR portal_labels_sane(labels));
ALTER TABLE allocation_series ADD CONSTRAINT series_labels_sane
  CHECK (labels = '{}' OR portal_labels_sane(labels));
ALTER TABLE allocation_bookinglabel ADD CONSTRAINT bookinglabel_of_booking_in_tenant
  FOREIGN KEY (tenant_id, booking_id) REFERENCES allocation_booking (tenant_id, id)
  ON DELETE CASCADE;
CREATE FUNCTION allocation_labels_index() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    DELETE FROM allocation_bookinglabel WHERE tenant_id = NEW.tenant_id AND booking_id = NEW.id;
  END IF;
  INSERT INTO allocation_bookinglabel (tenant_id, booking_id, key, value)
    SELECT NEW.tenant_id, NEW.id, key, value FROM jsonb_each_text(NEW.labels);
  RETURN NULL;
END $$;
CREATE TRIGGER labels_of_new AFTER INSERT ON allocation_booking
  FOR EACH ROW WHEN (NEW.labels <> '{}') EXECUTE FUNCTION allocation_labels_index();
CREATE TRIGGER labels_of_changed AFTER UPDATE ON allocation_booking
  FOR EACH ROW WHEN (OLD.labels IS DISTINCT FROM NEW.labels)
  EXECUTE FUNCTION allocation_labels_index();
"""
    + protect("allocation_bookinglabel", grants="SELECT, INSERT, DELETE")
)
LABELS = models.Value({}, output_field=models.JSONField())
REFERENCE = "URL or key of a ticket."
NO_SPACE = models.Q(external_ref__regex=r"^\S*$")


class Migration(migrations.Migration):
    dependencies = [("allocation", "0010_charge_sums"), ("tenants", "0008_labels")]
    operations = [
        migrations.AddField("booking", "labels", models.JSONField(blank=True, db_default=LABELS, default=dict, help_text="Key-value pairs, at most 32.")),
        migrations.AddField("booking", "external_ref", models.CharField(blank=True, db_default="", default="", help_text=REFERENCE, max_length=500)),
        migrations.AddField("series", "labels", models.JSONField(blank=True, db_default=LABELS, default=dict, help_text="Those of its bookings.")),
        migrations.AddField("series", "external_ref", models.CharField(blank=True, db_default="", default="", help_text=REFERENCE, max_length=500)),
        migrations.AddConstraint("booking", models.CheckConstraint(condition=NO_SPACE, name="booking_reference_sane")),
        migrations.AddConstraint("series", models.CheckConstraint(condition=NO_SPACE, name="series_reference_sane")),
        migrations.AddIndex("booking", models.Index(condition=~models.Q(external_ref=""), fields=["tenant", "external_ref"], name="booking_by_reference")),
        migrations.CreateModel(
            name="BookingLabel",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=63)),
                ("value", models.CharField(max_length=100)),
                ("booking", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="allocation.booking")),
                ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("tenant", "booking", "key"), name="booking_label_once")],
                "indexes": [models.Index(fields=["tenant", "key", "value", "booking"], name="booking_by_label")],
            },
        ),
        migrations.RunSQL(INDEX),
    ]
