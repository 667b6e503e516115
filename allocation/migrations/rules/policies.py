"""Versions of the policy that go into force: which changes of them there are, and who approves."""

from tenants.platform.wall import system_table, updates_only

_TABLES = "allocation_policyapproval", "allocation_policyactivation"

# What an activation puts into force is its own version, unless it says otherwise.
APPROVALS = """
CREATE FUNCTION allocation_policy_approved() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
BEGIN
  IF EXISTS (SELECT FROM allocation_policyversion v
             WHERE v.number = NEW.version_id AND v.created_by_id = NEW.by_id) THEN
    RAISE EXCEPTION 'nobody approves their own version'
      USING ERRCODE = '23514', CONSTRAINT = 'policy_approved_by_another';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER by_another BEFORE INSERT ON allocation_policyapproval
  FOR EACH ROW EXECUTE FUNCTION allocation_policy_approved();
CREATE FUNCTION allocation_policy_activated() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.state <> 'waiting' THEN
    RAISE EXCEPTION 'an activation ends once' USING ERRCODE = '23514', CONSTRAINT = 'policy_activation_once';
  END IF;
  IF NEW.state = 'done' AND NEW.in_force_id IS NULL THEN
    NEW.in_force_id := NEW.version_id;
  END IF;
  IF NEW.state = 'done' AND NEW.kind = 'activation' AND NEW.waiver = ''
    AND NEW.ended_at < NEW.asked_at + interval '1 day'
    AND NOT EXISTS (SELECT FROM allocation_policyapproval a WHERE a.version_id = NEW.version_id)
    AND NOT EXISTS (SELECT FROM allocation_policyactivation a
                    WHERE a.version_id = NEW.version_id AND a.state = 'done' AND a.id <> NEW.id) THEN
    RAISE EXCEPTION 'a second operator approves a version, or it waits for a day'
      USING ERRCODE = '23514', CONSTRAINT = 'policy_second_person';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER kept BEFORE INSERT OR UPDATE ON allocation_policyactivation
  FOR EACH ROW EXECUTE FUNCTION allocation_policy_activated();
"""
RIGHTS = (
    "".join(map(system_table, _TABLES))
    + f"REVOKE DELETE ON {', '.join(_TABLES)} FROM portal_system, portal_ops;\n"
    + updates_only(
        {
            "allocation_policyapproval": "",
            "allocation_policyactivation": "state, due_at, ended_at, former_id, note, in_force_id, applied",
        }
    )
)
# The version that a new site has is in force from the beginning.
HISTORY = """
INSERT INTO allocation_policyactivation
  (version_id, kind, state, asked_at, asked_by_id, starts, due_at, reason, waiver, ended_at, former_id, note)
SELECT number, 'published', 'done', created, created_by_id, created, created, '', '', created,
       lag(number) OVER (ORDER BY number), ''
FROM allocation_policyversion WHERE state <> 'draft' ORDER BY number;
"""

SQL = APPROVALS + RIGHTS + HISTORY
