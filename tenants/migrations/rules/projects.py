"""Tenants, their projects, labs and limits, and the classes and tiers that all tenants share."""

from tenants.platform.reference import reference_of_all, reference_of_tenants
from tenants.platform.wall import callable_by, open_table, protect, tenant_key

SHARED = (
    open_table("tenants_gpuclass")
    + reference_of_all("tenants_gpuclass")
    + open_table("tenants_tier")
    + reference_of_all("tenants_tier")
)

PROJECTS = (
    protect("tenants_tenant", "id", "SELECT, UPDATE (bookings_counted)")
    + protect("tenants_project")
    + tenant_key("tenants_project", "lab_id", "tenants_lab")
    + reference_of_tenants("tenants_project")
)

LABS = (
    protect("tenants_lab", grants="SELECT, INSERT, UPDATE")
    + reference_of_tenants("tenants_lab")
    + protect("tenants_lablead", grants="SELECT, INSERT, DELETE")
    + tenant_key("tenants_lablead", "lab_id", "tenants_lab")
)

LIMITS = (
    protect("tenants_quota")
    + tenant_key("tenants_quota", "project_id", "tenants_project")
    + reference_of_tenants("tenants_quota")
    + protect("tenants_labquota")
    + tenant_key("tenants_labquota", "lab_id", "tenants_lab")
    + reference_of_tenants("tenants_labquota")
    + protect("tenants_personquota")
    + tenant_key("tenants_personquota", "project_id", "tenants_project")
    + reference_of_tenants("tenants_personquota")
)

# Admins set limits at some times of their labs and projects, only operators those of a tenant.
WINDOWS = (
    protect("tenants_quotawindow", grants="SELECT, INSERT, DELETE")
    + """
CREATE POLICY own_windows_added ON tenants_quotawindow AS RESTRICTIVE FOR INSERT TO portal_web
  WITH CHECK (project_id IS NOT NULL OR lab_id IS NOT NULL OR user_id IS NOT NULL);
CREATE POLICY own_windows_removed ON tenants_quotawindow AS RESTRICTIVE FOR DELETE TO portal_web
  USING (project_id IS NOT NULL OR lab_id IS NOT NULL OR user_id IS NOT NULL);
"""
    + tenant_key("tenants_quotawindow", "lab_id", "tenants_lab")
    + tenant_key("tenants_quotawindow", "project_id", "tenants_project")
    + reference_of_tenants("tenants_quotawindow")
)

# One sum per class of what other tenants guarantee and lend, for quotes.
LENDERS = """
CREATE FUNCTION portal_lenders()
RETURNS TABLE (gpu_class text, guaranteed numeric, lent numeric)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT q.gpu_class_id, sum(q.guaranteed_units),
         sum(least(q.guaranteed_units, coalesce(q.lend_limit_units, q.guaranteed_units)))
  FROM tenants_quota q
  WHERE q.project_id IS NULL
    AND q.tenant_id IS DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid
  GROUP BY q.gpu_class_id
$$;
""" + callable_by("portal_lenders()")

# The rule that every table with labels has.
LABELS = """
CREATE FUNCTION portal_labels_sane(labels jsonb) RETURNS boolean
IMMUTABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN jsonb_typeof(labels) <> 'object' THEN false ELSE (
    SELECT count(*) <= 32 AND coalesce(bool_and(
      key ~ '^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$'
      AND key NOT IN ('campaign', 'person', 'tier')
      AND jsonb_typeof(value) = 'string'
      AND char_length(value #>> '{}') BETWEEN 1 AND 100
      AND strpos(value #>> '{}', ',') = 0), true)
    FROM jsonb_each(labels)) END
$$;
"""

SQL = SHARED + PROJECTS + LABS + LIMITS + WINDOWS + LENDERS + LABELS
