"""The audit log, its seals, and the files into which old rows are moved."""

from tenants.platform.wall import append_only, callable_by, protect

# The triggers refuse everybody; these roles may not even try.
LOG = (
    protect("tenants_auditentry", grants="SELECT, INSERT")
    + append_only("tenants_auditentry")
    + protect("tenants_auditseal", grants="SELECT")
    + append_only("tenants_auditseal")
    + protect("tenants_archivefile", grants="SELECT")
    + append_only("tenants_archivefile")
    + """
REVOKE UPDATE, DELETE ON tenants_auditentry, tenants_auditseal FROM portal_system, portal_ops;
REVOKE INSERT, UPDATE, DELETE ON tenants_archivefile FROM portal_system, portal_ops;
"""
)

# The expressions of `tenants.services.sealed_log.search`: one index for each place of a name.
NAMES = """
CREATE INDEX audit_of_object ON tenants_auditentry (tenant_id, upper(object_id));
CREATE INDEX audit_of_label ON tenants_auditentry (tenant_id, upper(detail ->> 'label'))
  WHERE upper(detail ->> 'label') IS NOT NULL;
""" + "".join(
    f"""
CREATE INDEX audit_of_{name} ON tenants_auditentry
  (tenant_id, upper(detail #>> '{{after,{name}}}'))
  WHERE upper(detail #>> '{{after,{name}}}') IS NOT NULL;
"""
    for name in ("where", "for", "tenant")
)

# `upper()` is not leakproof, so under row-level security PostgreSQL would read all entries of a
# tenant before it compares. The function compares first, by the indexes, for one tenant only.
NAMED = """
CREATE FUNCTION portal_audit_named(words text) RETURNS SETOF bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT e.id FROM tenants_auditentry e
  WHERE e.tenant_id = (SELECT portal_tenant()) AND (
    upper(e.object_id) = upper(words)
    OR upper(e.detail ->> 'label') = upper(words)
    OR upper(e.detail #>> '{after,where}') = upper(words)
    OR upper(e.detail #>> '{after,for}') = upper(words)
    OR upper(e.detail #>> '{after,tenant}') = upper(words))
$$;
""" + callable_by("portal_audit_named(text)")

SQL = LOG + NAMES + NAMED
