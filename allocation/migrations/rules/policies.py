"""Versions of the policy that go into force: which changes of them there are, and who approves."""

from tenants.platform.wall import system_table, updates_only

_TABLES = "allocation_policyapproval", "allocation_policyactivation"

# A draft goes into force as itself, and an earlier version again; the document never changes.
STATES = """
CREATE OR REPLACE FUNCTION portal_policy_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'UPDATE'
    AND (OLD.state, NEW.state) IN (('live', 'retired'), ('draft', 'live'), ('retired', 'live'))
    AND (NEW.number, NEW.document, NEW.created, NEW.created_by_id)
      IS NOT DISTINCT FROM (OLD.number, OLD.document, OLD.created, OLD.created_by_id)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a version of the policy is kept as it is' USING ERRCODE = '42501';
END $$;
"""
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
            "allocation_policyactivation": "state, due_at, ended_at, former_id, note",
        }
    )
)
# Until now a version was in force from its making on, until the next one was made.
HISTORY = """
INSERT INTO allocation_policyactivation
  (version_id, kind, state, asked_at, asked_by_id, starts, due_at, reason, waiver, ended_at, former_id, note)
SELECT number, 'published', 'done', created, created_by_id, created, created, '', '', created,
       lag(number) OVER (ORDER BY number), ''
FROM allocation_policyversion WHERE state <> 'draft' ORDER BY number;
"""

SQL = STATES + APPROVALS + RIGHTS + HISTORY
