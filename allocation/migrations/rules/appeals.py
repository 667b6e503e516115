"""Appeals against pauses."""

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_TABLE = "allocation_pauseappeal"
_ANSWER = "state, answer, answered, answered_by_id"
# People contest, and admins and operators answer; workers only read.
RIGHTS = (
    protect(_TABLE, grants=f"SELECT, INSERT, UPDATE ({_ANSWER})")
    + tenant_key(_TABLE, "booking_id", "allocation_booking")
    + tenant_key(_TABLE, "pause_id", "allocation_pause")
    + no_right("INSERT, DELETE", _TABLE)
    + no_right("UPDATE", _TABLE, roles="portal_system")
    + updates_only({_TABLE: _ANSWER}, roles="portal_ops")
)

# An appeal is answered once, by whom it is for.
ANSWERS = """
CREATE FUNCTION allocation_check_appeal() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'open' THEN
      RAISE EXCEPTION 'an appeal begins as open'
        USING ERRCODE = '23514', CONSTRAINT = 'pause_appeal_begins_open';
    END IF;
  ELSIF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'an appeal is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'pause_appeal_answered_once';
  ELSIF OLD.decider <> (CASE current_user WHEN 'portal_ops' THEN 'operator' ELSE 'admin' END) THEN
    RAISE EXCEPTION 'others answer this appeal'
      USING ERRCODE = '42501', CONSTRAINT = 'pause_appeal_decider';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_appeal BEFORE INSERT OR UPDATE ON allocation_pauseappeal
  FOR EACH ROW EXECUTE FUNCTION allocation_check_appeal();
REVOKE EXECUTE ON FUNCTION allocation_check_appeal() FROM PUBLIC;
"""

SQL = RIGHTS + ANSWERS
