"""Failed messages: programs and operators see them. The web's role only learns how many there are."""

from tenants.platform.wall import callable_by, protect

SQL = (
    protect("tenants_failedmessage", grants="")
    + """
CREATE FUNCTION portal_failed_messages() RETURNS bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT count(*) FROM tenants_failedmessage WHERE dismissed IS NULL
$$;
"""
    + callable_by("portal_failed_messages()")
)
