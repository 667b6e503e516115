"""Passwords, and what ends sessions.

A web process can't read password hashes: it hashes the password with the salt that
`portal_password_form` returns and presents the result.
"""

from tenants.platform.wall import callable_by, system_table

PASSWORDS = (
    system_table("tenants_password")
    + """
CREATE FUNCTION portal_password_form(wanted text) RETURNS text
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT regexp_replace(p.encoded, '[^$]*$', '')
  FROM tenants_password p JOIN tenants_user u ON u.id = p.user_id
  WHERE u.username = wanted AND u.is_active AND p.encoded LIKE '%$%'
$$;
CREATE FUNCTION portal_password_holder(wanted text, presented text) RETURNS bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.id
  FROM tenants_password p JOIN tenants_user u ON u.id = p.user_id
  WHERE u.username = wanted AND u.is_active AND p.encoded LIKE '%$%' AND p.encoded = presented
$$;
CREATE FUNCTION portal_password_change(wanted text, presented text, chosen text) RETURNS boolean
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH changed AS (
    UPDATE tenants_password SET encoded = chosen
    WHERE user_id = portal_password_holder(wanted, presented) AND chosen LIKE '%$%$%'
    RETURNING 1)
  SELECT EXISTS (SELECT FROM changed)
$$;
"""
    + callable_by(
        "portal_password_form(text)",
        "portal_password_holder(text, text)",
        "portal_password_change(text, text, text)",
    )
)

# A new password and a closed account end all sessions in the same commit, also those that wait for
# a second factor.
SESSIONS_END = """
-- Closing the account or changing the password also ends sessions that wait.
CREATE FUNCTION portal_account_closed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  DELETE FROM tenants_session WHERE user_id = NEW.id OR pending_id = NEW.id;
  RETURN NULL;
END $$;
CREATE TRIGGER sessions_end AFTER UPDATE OF is_active ON tenants_user
  FOR EACH ROW WHEN (NOT NEW.is_active) EXECUTE FUNCTION portal_account_closed();
CREATE FUNCTION portal_password_changed() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  DELETE FROM tenants_session WHERE user_id = OLD.user_id OR pending_id = OLD.user_id;
  RETURN NULL;
END $$;
CREATE TRIGGER sessions_end AFTER UPDATE OF encoded ON tenants_password
  FOR EACH ROW WHEN (OLD.encoded IS DISTINCT FROM NEW.encoded)
  EXECUTE FUNCTION portal_password_changed();
CREATE TRIGGER sessions_end_too AFTER DELETE ON tenants_password
  FOR EACH ROW EXECUTE FUNCTION portal_password_changed();
"""

SQL = PASSWORDS + SESSIONS_END
