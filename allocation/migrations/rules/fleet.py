"""Racks, nodes and GPUs, what is known of them, and the state of the portal itself."""

from tenants.platform.reference import reference_of_all
from tenants.platform.wall import callable_by, open_table, protect, system_table

HARDWARE = (
    open_table("allocation_rack")
    + open_table("allocation_node")
    + open_table("allocation_gpu")
    + open_table("allocation_gpumodel")
    + reference_of_all("allocation_gpumodel")
    + open_table("allocation_migplacement")
    + reference_of_all("allocation_migplacement")
    + open_table("allocation_workspeed")
    + reference_of_all("allocation_workspeed")
    + open_table("allocation_maintenance")
)

# A node writes the document of an examination, so its size is bounded here, too.
REPORTS = (
    system_table("allocation_nodeinventory")
    + system_table("allocation_gpuevent")
    + protect("allocation_gpusample", grants="SELECT")
    + protect("allocation_gpuuse", grants="SELECT")
    + system_table("allocation_nodeexamination")
    + """
ALTER TABLE allocation_nodeexamination ADD CONSTRAINT examination_is_bounded CHECK (
  jsonb_typeof(checks) = 'array' AND jsonb_array_length(checks) <= 64
  AND octet_length(checks::text) <= 262144
);
"""
)

# A token is found by its hash, before a node is known.
ENROLMENT = (
    system_table("allocation_enrolmenttoken")
    + """
CREATE FUNCTION portal_enrolment_open(wanted bytea, at timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM allocation_enrolmenttoken
    WHERE digest = wanted AND used_at IS NULL AND expires > at
      AND (made_with_id IS NULL OR portal_token_lives(made_with_id, at)))
$$;
"""
    + callable_by("portal_enrolment_open(bytea, timestamptz)")
)

PORTAL = (
    open_table("allocation_portalmode")
    + open_table("allocation_backup")
    + open_table("allocation_eventcounter")
    + system_table("allocation_machineclock")
)

SQL = HARDWARE + REPORTS + ENROLMENT + PORTAL
