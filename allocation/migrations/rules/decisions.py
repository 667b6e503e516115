"""Decisions: kept as they are, archived with their deltas, and replayed on demand."""

from tenants.platform.wall import append_only, callable_by, system_table

# The program that archives moves the bytes of old decisions into a file; all else stays.
DECISIONS = (
    system_table("allocation_decision")
    + """
REVOKE UPDATE, DELETE ON allocation_decision FROM portal_system, portal_ops;
CREATE FUNCTION allocation_decision_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
DECLARE moved text[] := '{snapshot,plan,archived_in,snapshot_archived,plan_archived}';
BEGIN
  IF TG_OP = 'UPDATE' AND current_user = 'portal_owner'
    AND current_setting('portal.archiving', true) = 'on'
    AND OLD.archived_in = '' AND NEW.archived_in <> '' AND NEW.snapshot = '' AND NEW.plan = ''
    AND NEW.snapshot_archived = encode(sha256(OLD.snapshot), 'hex')
    AND NEW.plan_archived = encode(sha256(OLD.plan), 'hex')
    AND to_jsonb(NEW) - moved = to_jsonb(OLD) - moved
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON allocation_decision
  FOR EACH ROW EXECUTE FUNCTION allocation_decision_kept();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON allocation_decision
  FOR EACH STATEMENT EXECUTE FUNCTION portal_append_only();
CREATE INDEX decision_to_archive ON allocation_decision (id) WHERE archived_in = '';
CREATE INDEX event_of_decision ON allocation_bookingevent
  (tenant_id, ((detail ->> 'decision')::bigint))
  WHERE ((detail ->> 'decision')::bigint) IS NOT NULL;
"""
)

# The pieces of large plans: each is recorded in the transaction of its changes.
PIECES = (
    system_table("allocation_decisionpiece")
    + append_only("allocation_decisionpiece")
    + "REVOKE UPDATE, DELETE ON allocation_decisionpiece FROM portal_system, portal_ops;\n"
)

# A delta continues the keyframe of its base, which nobody moves away meanwhile.
FOLLOWS = """
CREATE FUNCTION allocation_decision_follows() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.base_id IS NOT NULL THEN
    PERFORM FROM allocation_decision base WHERE base.id = NEW.base_id AND base.id < NEW.id
      AND base.format = 3 AND base.archived_in = ''
      AND coalesce(base.keyframe_id, base.id) = NEW.keyframe_id
      FOR SHARE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'decision % does not follow decision %', NEW.id, NEW.base_id
        USING ERRCODE = '23514', CONSTRAINT = 'decision_follows_its_base';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER follows_its_base BEFORE INSERT ON allocation_decision
  FOR EACH ROW EXECUTE FUNCTION allocation_decision_follows();
"""

# The bytes of a keyframe, and of each delta, are needed by all deltas after it.
ARCHIVED_TOGETHER = """
CREATE FUNCTION allocation_decision_needed() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (
    SELECT FROM allocation_decision later
    WHERE later.keyframe_id = coalesce(NEW.keyframe_id, NEW.id)
      AND later.id > NEW.id AND later.archived_in = '')
  THEN
    RAISE EXCEPTION 'a later decision needs the bytes of decision %', NEW.id
      USING ERRCODE = '23001', CONSTRAINT = 'decision_archived_with_its_deltas';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER archived_together AFTER UPDATE OF archived_in ON allocation_decision
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (OLD.archived_in = '' AND NEW.archived_in <> '')
  EXECUTE FUNCTION allocation_decision_needed();
"""

# A web process has no right to decisions and replays. By these functions it reads them, without any
# tenant or person, and asks for a replay.
REPLAYS = (
    system_table("allocation_decisionreplay")
    + """
CREATE FUNCTION portal_decision(number bigint)
RETURNS TABLE (id bigint, at timestamptz, policy integer, software varchar, solve_ms integer,
               snapshot_sha256 varchar, plan_sha256 varchar, archived_in varchar)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT d.id, d.at, d.policy_id, d.software, d.solve_ms, d.snapshot_sha256, d.plan_sha256,
         d.archived_in
  FROM allocation_decision d WHERE d.id = number
$$;
CREATE FUNCTION portal_replays(number bigint)
RETURNS TABLE (id uuid, decision bigint, asked_at timestamptz, started_at timestamptz,
               finished_at timestamptz, outcome varchar, note varchar, comparison varchar,
               snapshot_sha256 varchar, plan_sha256 varchar, software varchar, took_ms integer,
               is_nightly boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r.id, r.decision_id, r.asked_at, r.started_at, r.finished_at, r.outcome, r.note,
         r.comparison, r.snapshot_sha256, r.plan_sha256, r.software, r.took_ms,
         r.asked_by_id IS NULL
  FROM allocation_decisionreplay r WHERE r.decision_id = number
  ORDER BY r.asked_at DESC, r.id LIMIT 1
$$;
CREATE FUNCTION portal_replays_open() RETURNS bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT count(*) FROM allocation_decisionreplay WHERE finished_at IS NULL
$$;
CREATE FUNCTION portal_replay_ask(number bigint, person bigint, asked timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  INSERT INTO allocation_decisionreplay (id, decision_id, asked_at, asked_by_id, attempts, outcome,
    note, comparison, snapshot_sha256, plan_sha256, software, took_ms)
  VALUES (gen_random_uuid(), number, asked, person, 0, '', '', '', '', '', '', 0)
  ON CONFLICT (decision_id) WHERE finished_at IS NULL DO NOTHING
$$;
"""
    + callable_by(
        "portal_decision(bigint)",
        "portal_replays(bigint)",
        "portal_replays_open()",
        "portal_replay_ask(bigint, bigint, timestamptz)",
    )
)

SQL = DECISIONS + PIECES + FOLLOWS + ARCHIVED_TOGETHER + REPLAYS
