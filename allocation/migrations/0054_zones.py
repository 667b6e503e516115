"""Zones above racks, and the storage of nodes."""

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.reference import reference_of_all
from tenants.platform.wall import callable_by, no_right, open_table

ZONE = "allocation_zone"
RIGHTS = (
    open_table(ZONE)
    + no_right("DELETE", ZONE)
    + no_right("INSERT, UPDATE", ZONE, roles="portal_system")
    + "GRANT UPDATE (zone_id) ON allocation_rack TO portal_ops;\n"
    # Every hour that is known has an amount.
    + """
ALTER TABLE allocation_zone ADD CONSTRAINT zone_price_is_money
  CHECK (array_position(price, NULL) IS NULL AND 0 <= ALL (price));
ALTER TABLE allocation_zone ADD CONSTRAINT zone_grams_are_amounts
  CHECK (array_position(grams, NULL) IS NULL AND 0 <= ALL (grams));
"""
    + reference_of_all(ZONE)
    # The storage of a node is read by the next snapshot; the zone of a rack is.
    + """
CREATE TRIGGER change_of_storage AFTER UPDATE ON allocation_node
  FOR EACH ROW WHEN ((OLD.storage, OLD.scratch_gb) IS DISTINCT FROM (NEW.storage, NEW.scratch_gb))
  EXECUTE FUNCTION allocation_change_other();
CREATE FUNCTION allocation_zone_in_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.ended IS NOT NULL AND EXISTS (SELECT FROM allocation_rack WHERE zone_id = NEW.slug) THEN
    RAISE EXCEPTION 'zone % has racks', NEW.slug USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER zone_in_use BEFORE UPDATE ON allocation_zone
  FOR EACH ROW EXECUTE FUNCTION allocation_zone_in_use();
CREATE FUNCTION allocation_rack_in_open_zone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM allocation_zone WHERE slug = NEW.zone_id AND ended IS NULL FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'zone % is no more', NEW.zone_id USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER rack_in_open_zone BEFORE INSERT OR UPDATE OF zone_id ON allocation_rack
  FOR EACH ROW WHEN (NEW.zone_id IS NOT NULL) EXECUTE FUNCTION allocation_rack_in_open_zone();
"""
    + callable_by("allocation_zone_in_use()", "allocation_rack_in_open_zone()", roles="")
)


class Migration(migrations.Migration):

    dependencies = [("allocation", "0053_host_use")]

    operations = [
        migrations.CreateModel(
            name='Zone',
            fields=[
                ('slug', models.CharField(max_length=40, primary_key=True, serialize=False, validators=[django.core.validators.RegexValidator('^[a-z][a-z0-9-]*$')])),
                ('name', models.CharField(max_length=60)),
                ('time_zone', models.CharField(max_length=50)),
                ('price', django.contrib.postgres.fields.ArrayField(base_field=models.DecimalField(decimal_places=4, max_digits=8), default=list, help_text="Money per kWh by hour, in the site's currency.", size=None)),
                ('grams', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveIntegerField(), default=list, help_text='CO2 per kWh by hour.', size=None)),
                ('created', models.DateTimeField()),
                ('ended', models.DateTimeField(blank=True, help_text='When it was given up.', null=True)),
            ],
            options={
                'ordering': ['slug'],
            },
        ),
        migrations.AddField(
            model_name='node',
            name='scratch_gb',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Local space for programs in GB.'),
        ),
        migrations.AddField(
            model_name='node',
            name='storage',
            field=models.CharField(blank=True, choices=[('', 'Not known'), ('local', 'Local NVMe'), ('shared', 'Shared'), ('none', 'None')], db_default='', default='', help_text='What its programs write to.', max_length=6),
        ),
        migrations.AddConstraint(
            model_name='node',
            constraint=models.CheckConstraint(condition=models.Q(('storage', 'local'), models.Q(('scratch_gb', 0), ('storage__in', ['', 'shared', 'none'])), _connector='OR'), name='node_scratch_is_local'),
        ),
        migrations.AddConstraint(
            model_name='zone',
            constraint=models.CheckConstraint(condition=models.Q(('slug__regex', '^[a-z][a-z0-9-]*$')), name='zone_slug_sane'),
        ),
        migrations.AddConstraint(
            model_name='zone',
            constraint=models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='zone_named'),
        ),
        migrations.AddConstraint(
            model_name='zone',
            constraint=models.CheckConstraint(condition=models.Q(('price__len', 0), ('price__len', 24), _connector='OR'), name='zone_price_of_every_hour'),
        ),
        migrations.AddConstraint(
            model_name='zone',
            constraint=models.CheckConstraint(condition=models.Q(('grams__len', 0), ('grams__len', 24), _connector='OR'), name='zone_grams_of_every_hour'),
        ),
        migrations.AddField(
            model_name='rack',
            name='zone',
            field=models.ForeignKey(blank=True, help_text='Where it stands, with all of its nodes; null: in no zone.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='racks', to='allocation.zone'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
