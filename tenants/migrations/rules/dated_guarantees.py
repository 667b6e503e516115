"""Guarantees between dates: operators set and end them, and quotes know what all others keep."""

from tenants.platform.reference import reference_of_tenants
from tenants.platform.wall import callable_by, no_right, protect, tenant_key, updates_only

_TABLE = "tenants_datedguarantee"
RIGHTS = (
    protect(_TABLE, grants="SELECT")
    + no_right("DELETE", _TABLE)
    + no_right("INSERT", _TABLE, roles="portal_system")
    + updates_only({_TABLE: ""}, roles="portal_system")
    + updates_only({_TABLE: "ended, ended_by_id"}, roles="portal_ops")
    + reference_of_tenants(_TABLE)
)

# One sum per class and time of what other tenants guarantee and do not lend, for quotes; only where a dated
# guarantee of another tenant changes it.
KEPT = """
CREATE FUNCTION portal_kept_by_others(at timestamptz)
RETURNS TABLE (gpu_class text, starts timestamptz, ends timestamptz, kept numeric)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH dated AS (
    SELECT d.* FROM tenants_datedguarantee d
    WHERE d.ended IS NULL AND d.ends > at AND d.project_id IS NULL AND d.lab_id IS NULL
      AND d.tenant_id IS DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid
  ), dates AS (
    SELECT d.gpu_class_id, greatest(d.starts, at) AS instant FROM dated d
    UNION SELECT d.gpu_class_id, d.ends FROM dated d
  ), spans AS (
    SELECT dates.gpu_class_id, instant AS starts,
           lead(instant) OVER (PARTITION BY dates.gpu_class_id ORDER BY instant) AS ends
    FROM dates
  )
  SELECT s.gpu_class_id, s.starts, s.ends,
         sum(greatest(0, coalesce(d.guaranteed_units, q.guaranteed_units)
                         - coalesce(q.lend_limit_units, d.guaranteed_units, q.guaranteed_units)))
  FROM spans s
    JOIN tenants_quota q ON q.gpu_class_id = s.gpu_class_id AND q.project_id IS NULL
      AND q.tenant_id IS DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid
    LEFT JOIN dated d ON d.tenant_id = q.tenant_id AND d.gpu_class_id = q.gpu_class_id
      AND d.starts <= s.starts AND d.ends > s.starts
  WHERE s.ends IS NOT NULL
  GROUP BY s.gpu_class_id, s.starts, s.ends
  ORDER BY s.gpu_class_id, s.starts
$$;
""" + callable_by("portal_kept_by_others(timestamptz)")

# Admins and lab leads set those of labs and projects, only operators those of a tenant.
INNER = (
    """
ALTER TABLE tenants_datedguarantee ADD CONSTRAINT dated_guarantee_once_at_a_time
  EXCLUDE USING gist (tenant_id WITH =, coalesce(project_id, lab_id, tenant_id) WITH =,
                      gpu_class_id WITH =, tstzrange(starts, ends) WITH &&)
  WHERE (ended IS NULL);
GRANT INSERT ON tenants_datedguarantee TO portal_web, portal_system;
GRANT UPDATE (ended, ended_by_id) ON tenants_datedguarantee TO portal_web;
CREATE POLICY inner_guarantees_added ON tenants_datedguarantee AS RESTRICTIVE FOR INSERT TO portal_web
  WITH CHECK (project_id IS NOT NULL OR lab_id IS NOT NULL);
CREATE POLICY inner_guarantees_ended ON tenants_datedguarantee AS RESTRICTIVE FOR UPDATE TO portal_web
  USING (project_id IS NOT NULL OR lab_id IS NOT NULL);
"""
    + tenant_key("tenants_datedguarantee", "lab_id", "tenants_lab")
    + tenant_key("tenants_datedguarantee", "project_id", "tenants_project")
)

SQL = RIGHTS + KEPT + INNER
