"""Tokens of programs, and the answers that are kept for repeated requests."""

from tenants.platform.wall import callable_by, protect, tenant_key

# A web process writes the hashes of tokens and never reads one.
TOKENS = (
    protect(
        "tenants_apitoken",
        grants="INSERT, UPDATE (last_used, revoked, last_address, expires),"
        " SELECT (id, tenant_id, user_id, name, prefix, created, expires, last_used, revoked,"
        " made_with_id, replaces_id, follows_id, scopes, project_id, last_address, warned)",
    )
    + tenant_key("tenants_apitoken", "made_with_id", "tenants_apitoken")
    + tenant_key("tenants_apitoken", "project_id", "tenants_project")
    + """
CREATE FUNCTION portal_token(wanted bytea)
RETURNS TABLE (token_id uuid, user_id bigint, tenant_id uuid, tenant_slug text,
               expires timestamptz, revoked timestamptz, last_used timestamptz,
               scopes text[], project_id uuid)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.id, a.user_id, a.tenant_id, t.slug, a.expires, a.revoked, a.last_used,
         a.scopes::text[], a.project_id
  FROM tenants_apitoken a JOIN tenants_tenant t ON t.id = a.tenant_id
  WHERE a.digest = wanted
$$;
"""
    + callable_by("portal_token(bytea)")
)

# Operators' tokens are valid in the operators' process, so a web process must not make one, nor a
# token for somebody outside the tenant. `session_user` is the login role, whatever was set since.
HOLDERS = """
CREATE FUNCTION portal_operators_token() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF session_user = 'portal_web'
    AND EXISTS (SELECT FROM tenants_user u WHERE u.id = NEW.user_id AND u.is_staff)
    AND (TG_OP = 'INSERT'
      OR (NEW.digest, NEW.user_id, NEW.tenant_id, NEW.expires)
        IS DISTINCT FROM (OLD.digest, OLD.user_id, OLD.tenant_id, OLD.expires)
      OR (OLD.revoked IS NOT NULL AND NEW.revoked IS DISTINCT FROM OLD.revoked))
  THEN
    RAISE EXCEPTION 'tokens of operators are made in the operators'' process'
      USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER operators_token BEFORE INSERT OR UPDATE ON tenants_apitoken
  FOR EACH ROW EXECUTE FUNCTION portal_operators_token();
CREATE FUNCTION portal_members_token() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM tenants_membership m
                 WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.user_id) THEN
    RAISE EXCEPTION 'tokens are for members of the tenant' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER members_token BEFORE INSERT ON tenants_apitoken FOR EACH ROW
  WHEN (current_user = 'portal_web') EXECUTE FUNCTION portal_members_token();
"""

# A token never makes one that may do more or ends later, and no token is extended.
BOUNDS = """
CREATE FUNCTION portal_token_bounded() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE maker tenants_apitoken;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF NEW.expires > OLD.expires
      OR (NEW.scopes, NEW.project_id) IS DISTINCT FROM (OLD.scopes, OLD.project_id)
    THEN
      RAISE EXCEPTION 'a token is never extended or widened' USING ERRCODE = '42501';
    END IF;
  ELSIF NEW.made_with_id IS NOT NULL THEN
    SELECT * INTO maker FROM tenants_apitoken WHERE id = NEW.made_with_id;
    IF NOT (NEW.scopes <@ maker.scopes) OR NEW.expires > maker.expires
      OR (maker.project_id IS NOT NULL AND NEW.project_id IS DISTINCT FROM maker.project_id)
    THEN
      RAISE EXCEPTION 'a token makes none that is stronger' USING ERRCODE = '42501';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER bounded BEFORE INSERT OR UPDATE ON tenants_apitoken
  FOR EACH ROW EXECUTE FUNCTION portal_token_bounded();
"""

SQL = TOKENS + HOLDERS + BOUNDS + protect("tenants_idempotencykey")
