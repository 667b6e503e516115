"""The tenant wall in the database: row security, keys that can't leave a tenant, grants, triggers,
and the functions with which a web process reads what belongs to no tenant yet.

`portal_web` is the role of web processes, `portal_system` of background work, `portal_ops` of
operators. All tables belong to `portal_owner`.
"""

from django.db import migrations

from tenants.platform.wall import append_only, open_table, protect, system_table, tenant_key

# An unset tenant is an error, so that a forgotten context never shows an empty page. The program
# that archives moves old rows of the log into files; nobody else deletes from an append-only table.
BASE = """
CREATE FUNCTION portal_tenant() RETURNS uuid STABLE LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE said text := current_setting('portal.tenant', true);
BEGIN
  IF coalesce(said, '') = '' THEN
    RAISE EXCEPTION 'tenant context missing' USING ERRCODE = '42501';
  END IF;
  RETURN said::uuid;
END $$;
CREATE FUNCTION portal_append_only() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_user = 'portal_owner'
    AND TG_TABLE_NAME IN ('tenants_auditentry', 'allocation_bookingevent')
    AND current_setting('portal.archiving', true) = 'on'
  THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
"""

TABLES = "\n".join(
    [
        "GRANT SELECT ON django_migrations TO portal_web, portal_system, portal_ops;",
        open_table("django_content_type"),
        open_table("auth_group"),
        open_table("auth_permission"),
        open_table("auth_group_permissions"),
        open_table("tenants_gpuclass"),
        open_table("tenants_tier"),
        system_table("tenants_user_groups"),
        system_table("tenants_user_user_permissions"),
        system_table("tenants_password"),
        system_table("tenants_session"),
        # No web request makes an operator: `is_staff` is not among the columns.
        system_table("tenants_user"),
        "GRANT SELECT, UPDATE (time_zone, mails) ON tenants_user TO portal_web;",
        protect("tenants_tenant", "id", "SELECT, UPDATE (bookings_counted)"),
        protect("tenants_project"),
        protect("tenants_membership", grants="SELECT, UPDATE (role), DELETE"),
        protect("tenants_quota"),
        # A web process writes the hashes of tokens and never reads one.
        protect(
            "tenants_apitoken",
            grants="INSERT, UPDATE (last_used, revoked), SELECT (id, tenant_id, user_id, name,"
            " prefix, created, expires, last_used, revoked, made_with_id)",
        ),
        protect("tenants_idempotencykey"),
        protect("tenants_invitation", grants="SELECT, INSERT, UPDATE"),
        protect("tenants_knownperson", grants="SELECT"),
        protect("tenants_outboxmessage", grants="SELECT, INSERT"),
        protect("tenants_mail", grants="SELECT"),
        protect("tenants_auditentry", grants="SELECT, INSERT"),
        protect("tenants_auditseal", grants="SELECT"),
        protect("tenants_archivefile", grants="SELECT"),
        tenant_key("tenants_membership", "project_id", "tenants_project"),
        tenant_key("tenants_quota", "project_id", "tenants_project"),
        tenant_key("tenants_invitation", "project_id", "tenants_project"),
        tenant_key("tenants_apitoken", "made_with_id", "tenants_apitoken"),
        append_only("tenants_auditentry"),
        append_only("tenants_auditseal"),
        append_only("tenants_archivefile"),
        # The triggers refuse everybody; these roles may not even try.
        "REVOKE UPDATE, DELETE ON tenants_auditentry, tenants_auditseal"
        " FROM portal_system, portal_ops;",
        "REVOKE INSERT, UPDATE, DELETE ON tenants_archivefile FROM portal_system, portal_ops;",
    ]
)

# A tenant sees the people who are or were its members, and operators who acted there. A web
# process adds nobody: it can't insert memberships, and its log entries add no known person.
KNOWN_PEOPLE = """
CREATE FUNCTION portal_known_by_membership() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_knownperson (tenant_id, user_id) VALUES (NEW.tenant_id, NEW.user_id)
    ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE FUNCTION portal_known_by_act() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_knownperson (tenant_id, user_id) VALUES (NEW.tenant_id, NEW.actor_id)
    ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER known AFTER INSERT ON tenants_membership
  FOR EACH ROW EXECUTE FUNCTION portal_known_by_membership();
CREATE TRIGGER known AFTER INSERT ON tenants_auditentry FOR EACH ROW
  WHEN (NEW.tenant_id IS NOT NULL AND NEW.actor_id IS NOT NULL AND current_user <> 'portal_web')
  EXECUTE FUNCTION portal_known_by_act();
ALTER TABLE tenants_user ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants_user FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON tenants_user
  USING (id IN (SELECT k.user_id FROM tenants_knownperson k
                WHERE k.tenant_id = (SELECT portal_tenant())))
  WITH CHECK (id IN (SELECT k.user_id FROM tenants_knownperson k
                     WHERE k.tenant_id = (SELECT portal_tenant())));
"""

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
"""

# A web process can't read password hashes: it hashes the password with the salt that
# `portal_password_form` returns and presents the result. A new password and a closed account end
# all sessions in the same commit.
PASSWORDS = """
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
CREATE FUNCTION portal_account_closed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  DELETE FROM tenants_session WHERE user_id = NEW.id;
  RETURN NULL;
END $$;
CREATE FUNCTION portal_password_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  DELETE FROM tenants_session WHERE user_id = OLD.user_id;
  RETURN NULL;
END $$;
CREATE TRIGGER sessions_end AFTER UPDATE OF is_active ON tenants_user
  FOR EACH ROW WHEN (NOT NEW.is_active) EXECUTE FUNCTION portal_account_closed();
CREATE TRIGGER sessions_end AFTER UPDATE OF encoded ON tenants_password
  FOR EACH ROW WHEN (OLD.encoded IS DISTINCT FROM NEW.encoded)
  EXECUTE FUNCTION portal_password_changed();
CREATE TRIGGER sessions_end_too AFTER DELETE ON tenants_password
  FOR EACH ROW EXECUTE FUNCTION portal_password_changed();
"""

# Sign-ins are logged by the database. Lock-outs are logged at most once in five minutes.
SIGN_INS = """
CREATE FUNCTION portal_sign_in_write(person bigint, said text) RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  INSERT INTO tenants_auditentry
    (tenant_id, at, actor_id, action, object_kind, object_id, detail)
  VALUES (NULL, statement_timestamp(), person, said, 'user', coalesce(person::text, ''), '{}')
$$;
CREATE FUNCTION portal_sign_in_note(wanted text, said text) RETURNS void
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE person bigint := (SELECT id FROM tenants_user WHERE username = wanted);
BEGIN
  IF said NOT IN ('sign_in.failed', 'sign_in.locked_out') THEN
    RAISE EXCEPTION 'a sign-in fails or is locked out' USING ERRCODE = '22023';
  END IF;
  -- Tries that are not even made are many; that they are made is said once in five minutes.
  IF said = 'sign_in.locked_out' AND EXISTS (
    SELECT FROM tenants_auditentry e
    WHERE e.tenant_id IS NULL AND e.action = said AND e.actor_id IS NOT DISTINCT FROM person
      AND e.at > statement_timestamp() - interval '5 minutes')
  THEN
    RETURN;
  END IF;
  PERFORM portal_sign_in_write(person, said);
END $$;
CREATE FUNCTION portal_session_sign_in(session bytea, wanted text, presented text)
RETURNS bigint
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE person bigint := portal_password_holder(wanted, presented);
BEGIN
  UPDATE tenants_session SET user_id = person WHERE digest = session AND user_id IS NULL;
  IF person IS NULL OR NOT FOUND THEN
    RETURN NULL;
  END IF;
  PERFORM portal_sign_in_write(person, 'sign_in.done');
  RETURN person;
END $$;
"""

MEMBERSHIPS = """
CREATE FUNCTION portal_memberships(member bigint)
RETURNS TABLE (tenant_id uuid, tenant_slug text, tenant_name text, project_id uuid, role text,
               person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT t.id, t.slug, t.name, m.project_id, m.role,
         coalesce(nullif(trim(u.first_name || ' ' || u.last_name), ''), u.username), u.time_zone
  FROM tenants_membership m
  JOIN tenants_tenant t ON t.id = m.tenant_id AND t.is_open
  JOIN tenants_user u ON u.id = m.user_id AND u.is_active
  WHERE m.user_id = member
$$;
CREATE FUNCTION portal_token(wanted bytea)
RETURNS TABLE (token_id uuid, user_id bigint, tenant_id uuid, tenant_slug text,
               expires timestamptz, revoked timestamptz, last_used timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.id, a.user_id, a.tenant_id, t.slug, a.expires, a.revoked, a.last_used
  FROM tenants_apitoken a JOIN tenants_tenant t ON t.id = a.tenant_id
  WHERE a.digest = wanted
$$;
"""

# A credential is the hash of a session's key or of a token's text. A web process can't read such
# hashes; it knows those that its requests carry. A token is valid in one tenant only.
CREDENTIALS = """
CREATE FUNCTION portal_holder(credential bytea, at timestamptz)
RETURNS TABLE (user_id bigint, tenant_id uuid)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.id, held.tenant_id
  FROM (SELECT s.user_id, NULL::uuid AS tenant_id
        FROM tenants_session s WHERE s.digest = credential AND s.expires > at
        UNION ALL
        SELECT k.user_id, k.tenant_id FROM tenants_apitoken k
        WHERE k.digest = credential AND k.revoked IS NULL AND k.expires > at) held
  JOIN tenants_user u ON u.id = held.user_id AND u.is_active
$$;
CREATE FUNCTION portal_person(credential bytea, at timestamptz) RETURNS bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT h.user_id FROM portal_holder(credential, at) h
$$;
CREATE FUNCTION portal_account(credential bytea, at timestamptz) RETURNS SETOF tenants_user
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.* FROM tenants_user u WHERE u.id = portal_person(credential, at)
$$;
CREATE FUNCTION portal_account_by_password(wanted text, presented text) RETURNS SETOF tenants_user
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.* FROM tenants_user u WHERE u.id = portal_password_holder(wanted, presented)
$$;
CREATE FUNCTION portal_memberships_of(credential bytea, at timestamptz)
RETURNS TABLE (tenant_id uuid, tenant_slug text, tenant_name text, project_id uuid, role text,
               person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT m.* FROM portal_holder(credential, at) h, LATERAL portal_memberships(h.user_id) m
  WHERE h.tenant_id IS NULL OR m.tenant_id = h.tenant_id
$$;
-- Logs a change of a person's account in each of their tenants.
CREATE FUNCTION portal_account_note(credential bytea, done text, said jsonb, at timestamptz)
RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  INSERT INTO tenants_auditentry (tenant_id, at, actor_id, action, object_kind, object_id, detail)
  SELECT DISTINCT m.tenant_id, at, m.user_id, done, 'user', m.user_id::text, said
  FROM tenants_membership m JOIN tenants_tenant t ON t.id = m.tenant_id AND t.is_open
  WHERE m.user_id = portal_person(credential, at)
    AND done IN ('session.ended', 'session.all_ended', 'user.password_set')
$$;
CREATE FUNCTION portal_readers(digests bytea[], at timestamptz)
RETURNS TABLE (digest bytea, tenant_slug text, tenant_id uuid, project_id uuid, role text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.digest, m.tenant_slug, m.tenant_id, m.project_id, m.role
  FROM tenants_session s, LATERAL portal_memberships(s.user_id) m
  WHERE s.digest = ANY (digests) AND s.expires > at
$$;
"""

SESSIONS = """
CREATE FUNCTION portal_session(wanted bytea, at timestamptz)
RETURNS TABLE (user_id bigint, data text, last_seen timestamptz, device text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.user_id, s.data, s.last_seen, s.device
  FROM tenants_session s WHERE s.digest = wanted AND s.expires > at
$$;
CREATE FUNCTION portal_session_start(wanted bytea, held text, ends timestamptz, at timestamptz)
RETURNS boolean
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH made AS (
    INSERT INTO tenants_session (id, digest, data, created, expires, last_seen, device)
    VALUES (gen_random_uuid(), wanted, held, at, ends, at, '') ON CONFLICT (digest) DO NOTHING
    RETURNING 1)
  SELECT EXISTS (SELECT FROM made)
$$;
CREATE FUNCTION portal_session_update(wanted bytea, held text, ends timestamptz) RETURNS boolean
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH changed AS (
    UPDATE tenants_session SET data = held, expires = ends WHERE digest = wanted RETURNING 1)
  SELECT EXISTS (SELECT FROM changed)
$$;
CREATE FUNCTION portal_session_seen(wanted bytea, at timestamptz, by text, from_where inet)
RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE tenants_session SET last_seen = at, device = by, address = from_where
  WHERE digest = wanted
$$;
CREATE FUNCTION portal_session_drop(wanted bytea) RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  DELETE FROM tenants_session WHERE digest = wanted
$$;
CREATE FUNCTION portal_sessions_of(credential bytea, at timestamptz)
RETURNS TABLE (id uuid, created timestamptz, expires timestamptz, last_seen timestamptz,
               device text, address text, is_this boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.id, s.created, s.expires, s.last_seen, s.device, host(s.address),
         s.digest = credential
  FROM tenants_session s
  WHERE s.user_id = portal_person(credential, at) AND s.expires > at
  ORDER BY s.created DESC, s.id DESC
$$;
CREATE FUNCTION portal_sessions_end(credential bytea, at timestamptz, one uuid) RETURNS bigint
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH ended AS (
    DELETE FROM tenants_session s
    WHERE s.user_id = portal_person(credential, at)
      AND CASE WHEN one IS NULL THEN s.digest <> credential ELSE s.id = one END
    RETURNING 1)
  SELECT count(*) FROM ended
$$;
"""

# An invitation is valid as long as its maker may give its role.
INVITATIONS = """
CREATE FUNCTION portal_invitations(person bigint, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.id, t.id, t.slug, t.name, coalesce(p.name, ''), i.role,
         coalesce(nullif(trim(b.first_name || ' ' || b.last_name), ''), b.username), i.expires
  FROM tenants_user u
  JOIN tenants_invitation i ON i.state = 'open' AND i.expires > at
    AND i.invitee IN (lower(u.username), nullif(lower(u.email), ''))
  JOIN tenants_tenant t ON t.id = i.tenant_id AND t.is_open
  JOIN tenants_user b ON b.id = i.made_by_id AND b.is_active
  LEFT JOIN tenants_project p ON p.id = i.project_id
  WHERE u.id = person AND u.is_active AND coalesce(p.is_open, true)
    AND (b.is_staff OR EXISTS (
      SELECT FROM tenants_membership m
      WHERE m.tenant_id = i.tenant_id AND m.user_id = b.id
        AND (m.role = 'tenant_admin' OR (m.role = 'lead' AND m.project_id = i.project_id))))
  ORDER BY i.created, i.id
$$;
CREATE FUNCTION portal_invitations_to(credential bytea, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.* FROM portal_holder(credential, at) h, LATERAL portal_invitations(h.user_id, at) i
  WHERE h.tenant_id IS NULL OR i.tenant_id = h.tenant_id
$$;
-- The only way in which a web process adds a member: the invited person, by their own credential.
-- Returns the membership and the role before it, or nothing.
CREATE FUNCTION portal_invitation_join(credential bytea, wanted uuid, at timestamptz)
RETURNS TABLE (membership_id uuid, before text)
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  member bigint := portal_person(credential, at);
  offer tenants_invitation;
  had tenants_membership;
BEGIN
  SELECT * INTO offer FROM tenants_invitation i WHERE i.id = wanted AND i.state = 'open' FOR UPDATE;
  IF NOT FOUND OR NOT EXISTS (
    SELECT FROM portal_invitations_to(credential, at) o WHERE o.invitation_id = wanted) THEN
    RETURN;
  END IF;
  INSERT INTO tenants_membership (id, tenant_id, project_id, user_id, role)
    VALUES (gen_random_uuid(), offer.tenant_id, offer.project_id, member, offer.role)
    ON CONFLICT ON CONSTRAINT membership_once DO NOTHING
    RETURNING id INTO membership_id;
  IF NOT FOUND THEN
    SELECT * INTO had FROM tenants_membership m
      WHERE m.tenant_id = offer.tenant_id AND m.user_id = member
        AND m.project_id IS NOT DISTINCT FROM offer.project_id FOR UPDATE;
    UPDATE tenants_membership SET role = offer.role WHERE id = had.id;
    membership_id := had.id;
    before := had.role;
  END IF;
  RETURN NEXT;
END $$;
"""

# Operators' tokens are valid in the operators' process, so a web process must not make one, nor a
# token for somebody outside the tenant. `session_user` is the login role, whatever was set since.
TOKENS = """
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

FOR_ALL_ROLES = ", ".join(
    [
        "portal_token(bytea)",
        "portal_lenders()",
        "portal_password_form(text)",
        "portal_password_holder(text, text)",
        "portal_password_change(text, text, text)",
        "portal_sign_in_note(text, text)",
        "portal_session_sign_in(bytea, text, text)",
        "portal_account(bytea, timestamptz)",
        "portal_account_by_password(text, text)",
        "portal_account_note(bytea, text, jsonb, timestamptz)",
        "portal_memberships_of(bytea, timestamptz)",
        "portal_readers(bytea[], timestamptz)",
        "portal_session(bytea, timestamptz)",
        "portal_session_start(bytea, text, timestamptz, timestamptz)",
        "portal_session_update(bytea, text, timestamptz)",
        "portal_session_seen(bytea, timestamptz, text, inet)",
        "portal_session_drop(bytea)",
        "portal_sessions_of(bytea, timestamptz)",
        "portal_sessions_end(bytea, timestamptz, uuid)",
        "portal_invitations_to(bytea, timestamptz)",
        "portal_invitation_join(bytea, uuid, timestamptz)",
    ]
)
# These answer for a number, which a web process could count through.
NOT_FOR_WEB = "portal_memberships(bigint), portal_invitations(bigint, timestamptz)"
INTERNAL = (
    "portal_sign_in_write(bigint, text), portal_holder(bytea, timestamptz),"
    " portal_person(bytea, timestamptz)"
)
EXECUTE = f"""
REVOKE EXECUTE ON FUNCTION {FOR_ALL_ROLES}, {NOT_FOR_WEB}, {INTERNAL} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {FOR_ALL_ROLES} TO portal_web, portal_system, portal_ops;
GRANT EXECUTE ON FUNCTION {NOT_FOR_WEB} TO portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [
        migrations.RunSQL(BASE + TABLES),
        migrations.RunSQL(KNOWN_PEOPLE + LENDERS),
        migrations.RunSQL(PASSWORDS + SIGN_INS + MEMBERSHIPS),
        migrations.RunSQL(CREDENTIALS + SESSIONS + INVITATIONS + TOKENS),
        migrations.RunSQL(EXECUTE),
    ]
