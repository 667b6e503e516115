"""Passwords in a table that a web process can't read; whose a session is, only by a password."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import system_table

MOVE = "INSERT INTO tenants_password (user_id, encoded) SELECT id, password FROM tenants_user;"

SESSIONS_END = """
DROP TRIGGER sessions_end ON tenants_user;
DROP FUNCTION portal_sessions_end();
CREATE FUNCTION portal_account_closed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  DELETE FROM tenants_session WHERE user_id = NEW.id;
  RETURN NULL;
END $$;
CREATE TRIGGER sessions_end AFTER UPDATE OF is_active ON tenants_user
  FOR EACH ROW WHEN (NOT NEW.is_active) EXECUTE FUNCTION portal_account_closed();
CREATE FUNCTION portal_password_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  DELETE FROM tenants_session WHERE user_id = OLD.user_id;
  RETURN NULL;
END $$;
CREATE TRIGGER sessions_end AFTER UPDATE OF encoded ON tenants_password
  FOR EACH ROW WHEN (OLD.encoded IS DISTINCT FROM NEW.encoded)
  EXECUTE FUNCTION portal_password_changed();
CREATE TRIGGER sessions_end_too AFTER DELETE ON tenants_password
  FOR EACH ROW EXECUTE FUNCTION portal_password_changed();
"""

# Who knows the right hash knew the password: it can't be read, only made from the password with
# the salt that `portal_password_form` gives.
DOORS = """
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
CREATE FUNCTION portal_session_sign_in(session bytea, wanted text, presented text)
RETURNS bigint
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE tenants_session SET user_id = portal_password_holder(wanted, presented)
  WHERE digest = session AND user_id IS NULL
    AND portal_password_holder(wanted, presented) IS NOT NULL
  RETURNING user_id
$$;
"""

FUNCTIONS = (
    "portal_password_form(text), portal_password_holder(text, text),"
    " portal_password_change(text, text, text), portal_session_sign_in(bytea, text, text)"
)

GRANTS = f"""
REVOKE EXECUTE ON FUNCTION {FUNCTIONS} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {FUNCTIONS} TO portal_web, portal_system, portal_ops;
REVOKE INSERT, UPDATE ON tenants_session FROM portal_web;
GRANT INSERT (id, digest, data, created, expires, last_seen, device, address),
  UPDATE (data, expires, last_seen, device, address) ON tenants_session TO portal_web;
REVOKE UPDATE ON tenants_user FROM portal_web;
GRANT UPDATE (last_login, time_zone, mails) ON tenants_user TO portal_web;
"""

# Tokens of operators are taken by the operators' process, so a web process must not make one.
# `session_user` is who logged in, whatever role it has taken since.
OPERATORS_TOKENS = """
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
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0009_invitations")]

    operations = [
        migrations.CreateModel(
            "Password",
            [
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("encoded", models.CharField(max_length=128)),
            ],
        ),
        migrations.RunSQL(MOVE + system_table("tenants_password") + SESSIONS_END),
        migrations.RemoveField("user", "password"),
        migrations.RunSQL(DOORS + GRANTS + OPERATORS_TOKENS),
    ]
