"""The solver: its policy and its fence. It needs a live version and a state, which are put in."""

from tenants.platform.reference import reference_of_all
from tenants.platform.wall import open_table, system_table

# A policy holds whole numbers above zero, lists of names, and objects of whole numbers by tier or class.
# For some keys zero means never, or nothing.
LISTS = "'{order,victim_rules}'::text[]"
ZERO_ALLOWED = "'{no_show_after,no_show_share,mode_changes,mode_patience}'::text[]"
OBJECTS = ("borrow_windows", "headroom", "headroom_for", "class_weights", "slice_ahead")
_WITHOUT = "".join(f"'{name}' - " for name in OBJECTS)
_WHOLE = "".join(
    f"""
  AND coalesce(jsonb_typeof(document->'{name}'), 'object') = 'object'
  AND NOT jsonb_path_exists(document, '$.{name}.* ? (@.type() != "number" || @ < 0 || @ != @.floor())')"""
    for name in OBJECTS
)
DOCUMENT = f"""
ALTER TABLE allocation_policyversion ADD CONSTRAINT policy_of_whole_numbers CHECK (
  jsonb_typeof(document) = 'object'{_WHOLE}
  AND NOT jsonb_path_exists(
    document - {_WITHOUT}{LISTS}, '$.* ? (@.type() != "number" || @ < 0 || @ != @.floor())')
  AND NOT jsonb_path_exists(document - {_WITHOUT}{LISTS} - {ZERO_ALLOWED}, '$.* ? (@ < 1)')
  AND coalesce(jsonb_typeof(document->'order'), 'array') = 'array'
  AND coalesce(jsonb_typeof(document->'victim_rules'), 'array') = 'array'
  AND NOT jsonb_path_exists(document, '$.order[*] ? (@.type() != "string")')
  AND NOT jsonb_path_exists(document, '$.victim_rules[*] ? (@.type() != "string")')
);
"""

# A draft goes into force, is retired, and goes into force again; its document, parts and scenario never change.
POLICY = (
    open_table("allocation_policyversion")
    + """
REVOKE UPDATE, DELETE ON allocation_policyversion FROM portal_system, portal_ops;
GRANT UPDATE (state) ON allocation_policyversion TO portal_system, portal_ops;
CREATE FUNCTION portal_policy_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'UPDATE'
    AND (OLD.state, NEW.state) IN (('live', 'retired'), ('draft', 'live'), ('retired', 'live'))
    AND (NEW.number, NEW.document, NEW.parts, NEW.scenario, NEW.created, NEW.created_by_id)
      IS NOT DISTINCT FROM
      (OLD.number, OLD.document, OLD.parts, OLD.scenario, OLD.created, OLD.created_by_id)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a version of the policy is kept as it is' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON allocation_policyversion
  FOR EACH ROW EXECUTE FUNCTION portal_policy_kept();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON allocation_policyversion
  FOR EACH STATEMENT EXECUTE FUNCTION portal_append_only();
"""
)

SEED = """
INSERT INTO allocation_policyversion (number, document, state, created)
  VALUES (1, '{}', 'live', '2026-11-01T00:00:00Z');
INSERT INTO allocation_solverstate (id, leader_term, epoch) VALUES (1, 0, 1);
"""

# A new version is reference data: it decides what is refused at once.
REFERENCE = reference_of_all("allocation_policyversion")

SQL = DOCUMENT + POLICY + system_table("allocation_solverstate") + SEED + REFERENCE
