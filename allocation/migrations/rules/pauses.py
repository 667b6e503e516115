"""Pauses: none without its grace period, each resolved once."""

from tenants.platform.wall import protect, system_table, tenant_key

# A member confirms the save, asks for more time, ends the pause, gives GPUs back during it, or
# gives a fixed window an earlier end.
WALL = (
    protect(
        "allocation_pause",
        grants="SELECT, UPDATE (acknowledged_at, more_asked_at, ended_at, remaining_seconds,"
        " ends_before)",
    )
    + tenant_key("allocation_pause", "booking_id", "allocation_booking")
    + system_table("allocation_pausecause")
)

PAUSES = """
ALTER TABLE allocation_pause ADD CONSTRAINT pause_grace_kept
  CHECK (deadline >= notified_at + grace_seconds * interval '1 second');
CREATE FUNCTION allocation_check_pause() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF (OLD.resumed_at IS NOT NULL OR OLD.ended_at IS NOT NULL)
     AND (NEW.resumed_at, NEW.ended_at) IS DISTINCT FROM (OLD.resumed_at, OLD.ended_at) THEN
    RAISE EXCEPTION 'a pause is resolved once'
      USING ERRCODE = '23514', CONSTRAINT = 'pause_resolved_once';
  END IF;
  IF NEW.deadline < OLD.deadline THEN
    RAISE EXCEPTION 'a deadline never moves to an earlier time'
      USING ERRCODE = '23514', CONSTRAINT = 'pause_grace_kept';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_pause BEFORE UPDATE ON allocation_pause
  FOR EACH ROW EXECUTE FUNCTION allocation_check_pause();
"""

SQL = WALL + PAUSES
