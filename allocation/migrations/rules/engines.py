"""Engines: one agent for many hosts, and what it reports of them."""

from tenants.platform.wall import callable_by, no_right, open_table, system_table, updates_only

ENGINE, HOST = "allocation_engineagent", "allocation_enginehost"
RIGHTS = (
    open_table(ENGINE)
    + no_right("DELETE", ENGINE)
    # Commands make tokens; workers lock an engine out that exceeds its share.
    + updates_only({ENGINE: "link_digest, key_version, key_confirmed, rack_id"}, roles="portal_system")
    + system_table(HOST)
    + no_right("INSERT, UPDATE, DELETE", HOST, roles="portal_system")
    + updates_only({HOST: "inventory, kind, gone"}, roles="portal_ops")
    # An engine writes inventories, so their size is bounded here, too.
    + """
ALTER TABLE allocation_enginehost ADD CONSTRAINT host_of_engine_is_bounded
  CHECK (octet_length(inventory::text) <= 524288);
"""
    # A host that has an engine has its account and no other.
    + """
CREATE FUNCTION allocation_hosts_share_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM allocation_node n JOIN allocation_engineagent e ON e.name = n.engine_agent_id
    WHERE n.link_digest IS DISTINCT FROM e.link_digest
      AND (TG_TABLE_NAME = 'allocation_node' AND n.name = NEW.name
           OR TG_TABLE_NAME <> 'allocation_node' AND e.name = NEW.name))
  THEN
    RAISE EXCEPTION 'a host has another account than its engine' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER node_has_account_of_engine AFTER UPDATE ON allocation_node
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN ((OLD.engine_agent_id, OLD.link_digest) IS DISTINCT FROM (NEW.engine_agent_id, NEW.link_digest))
  EXECUTE FUNCTION allocation_hosts_share_account();
CREATE CONSTRAINT TRIGGER engine_has_account_of_hosts AFTER UPDATE ON allocation_engineagent
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (OLD.link_digest IS DISTINCT FROM NEW.link_digest)
  EXECUTE FUNCTION allocation_hosts_share_account();
"""
    + callable_by("allocation_hosts_share_account()", roles="")
)

SQL = RIGHTS
