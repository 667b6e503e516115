"""The change feed of the solver: which bookings and which hardware a transaction has changed.

A leading solver keeps its snapshot and reads what has changed since. The feed is filled by
triggers, so that no way of writing is missed. Only the system's role reads it.
"""

from collections.abc import Iterable

FEED = """
CREATE TABLE allocation_change (
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  kind text NOT NULL CHECK (kind IN ('booking', 'gpu', 'node', 'other')),
  key uuid,
  CHECK ((key IS NULL) = (kind = 'other'))
);
CREATE INDEX allocation_change_by_xid ON allocation_change (xid);
GRANT SELECT, DELETE ON allocation_change TO portal_system;

CREATE FUNCTION allocation_change_bookings() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO allocation_change (kind, key) SELECT 'booking', id FROM changed;
  RETURN NULL;
END $$;
CREATE FUNCTION allocation_change_parts() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO allocation_change (kind, key) SELECT DISTINCT 'booking', booking_id FROM changed;
  RETURN NULL;
END $$;
CREATE FUNCTION allocation_change_hardware() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO allocation_change (kind, key) VALUES (TG_ARGV[0], NEW.id);
  RETURN NULL;
END $$;
CREATE FUNCTION allocation_change_other() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO allocation_change (kind) VALUES ('other');
  RETURN NULL;
END $$;
"""


def of_rows(
    table: str, function: str, events: Iterable[str] = ("INSERT", "UPDATE", "DELETE")
) -> str:
    """SQL of triggers that name the booking of each row that a statement has changed."""
    return "".join(
        f"""
CREATE TRIGGER change_by_{event.lower()} AFTER {event} ON {table}
  REFERENCING {"OLD" if event == "DELETE" else "NEW"} TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION {function}();
"""
        for event in events
    )


def of_columns(table: str, kind: str, columns: str) -> str:
    """SQL of triggers that name the row when one of these columns has another value."""
    old, new = (", ".join(f"{row}.{name}" for name in columns.split()) for row in ("OLD", "NEW"))
    return f"""
CREATE TRIGGER change_by_insert AFTER INSERT ON {table}
  FOR EACH ROW EXECUTE FUNCTION allocation_change_hardware('{kind}');
CREATE TRIGGER change_by_update AFTER UPDATE ON {table}
  FOR EACH ROW WHEN (({old}) IS DISTINCT FROM ({new}))
  EXECUTE FUNCTION allocation_change_hardware('{kind}');
CREATE TRIGGER change_by_delete AFTER DELETE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION allocation_change_other();
"""


def of_all(table: str) -> str:
    """SQL of a trigger that makes the next snapshot a fresh one."""
    return f"""
CREATE TRIGGER change_by_any AFTER INSERT OR UPDATE OR DELETE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION allocation_change_other();
"""


# Of nodes and GPUs only the columns that a snapshot reads: heartbeats change others.
GPU = "number node_id index gpu_class_id model_id domain health mode mode_pinned"
NODE = (
    "name rack_id state agent_version unreachable_since long_unreachable clock_wrong partitioned"
    " ahead_epoch cores memory_mb"
)
# The solver reads the change of a booking together with it.
TRIGGERS = (
    of_rows("allocation_booking", "allocation_change_bookings")
    + of_rows("allocation_allocation", "allocation_change_parts")
    + of_rows("allocation_pause", "allocation_change_parts")
    + of_rows("allocation_bookingchange", "allocation_change_parts", ("INSERT", "UPDATE"))
    + of_columns("allocation_gpu", "gpu", GPU)
    + of_columns("allocation_node", "node", NODE)
    + """
CREATE TRIGGER change_of_driver AFTER UPDATE ON allocation_node
  FOR EACH ROW WHEN (OLD.driver IS DISTINCT FROM NEW.driver)
  EXECUTE FUNCTION allocation_change_other();
"""
    + of_all("allocation_rack")
    + of_all("allocation_gpumodel")
    + of_all("allocation_migplacement")
    + of_all("tenants_tier")
)

SQL = FEED + TRIGGERS
