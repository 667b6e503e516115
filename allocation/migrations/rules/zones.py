"""Zones above racks, the storage of nodes, and tiers whose work waits for cheap or clean energy."""

from allocation.migrations.rules.change_feed import of_all
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
_ENERGY = "allocation_tierenergy"
ENERGY = (
    open_table(_ENERGY)
    + no_right("INSERT, UPDATE, DELETE", _ENERGY, roles="portal_system")
    + of_all(_ENERGY)
    + of_all("allocation_zone")
)

SQL = RIGHTS + ENERGY
