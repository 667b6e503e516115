"""Versions of reference data: what every booking reads and people seldom change.

A web process keeps such data in memory and asks for the versions only
(`tenants/platform/reference.py`). The modules of the tables create the triggers.
"""

from tenants.platform.wall import callable_by

# A version is random and not a number: after a rollback or a restored backup no number comes twice
# with other data behind it. The row without a tenant is of what all tenants share.
VERSIONS = """
CREATE TABLE tenants_reference (
  owner uuid UNIQUE NULLS NOT DISTINCT,
  version uuid NOT NULL
);
INSERT INTO tenants_reference (owner, version) VALUES (NULL, gen_random_uuid());
GRANT SELECT ON tenants_reference TO portal_system, portal_ops;
CREATE FUNCTION portal_reference(tenant uuid) RETURNS uuid[]
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT ARRAY[(SELECT version FROM tenants_reference WHERE owner = tenant),
               (SELECT version FROM tenants_reference WHERE owner IS NULL)]
$$;
CREATE FUNCTION portal_reference_of_tenants() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_reference AS known (owner, version)
    SELECT tenant_id, gen_random_uuid()
    FROM (SELECT DISTINCT tenant_id FROM changed ORDER BY tenant_id) AS tenants
    ON CONFLICT (owner) DO UPDATE SET version = excluded.version;
  RETURN NULL;
END $$;
CREATE FUNCTION portal_reference_of_all() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  UPDATE tenants_reference SET version = gen_random_uuid() WHERE owner IS NULL;
  RETURN NULL;
END $$;
"""

SQL = VERSIONS + callable_by("portal_reference(uuid)")
