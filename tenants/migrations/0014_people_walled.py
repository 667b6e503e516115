"""People and sessions behind the wall: a web request reads those of its tenant, and by exact keys."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect

# Whoever is a member of a tenant, was one, or has acted there as an operator. A web process adds
# nobody: it can't insert memberships, and what it writes into the log names nobody new.
KNOWN = f"""
{protect("tenants_knownperson", grants="SELECT")}
INSERT INTO tenants_knownperson (tenant_id, user_id)
  SELECT tenant_id, user_id FROM tenants_membership
  UNION SELECT tenant_id, actor_id FROM tenants_auditentry
    WHERE tenant_id IS NOT NULL AND actor_id IS NOT NULL;
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

# A credential is the hash of a session's key or of a token's text. No web process can read such
# hashes; it knows those that its requests bring. A token is its person's in one tenant only.
PERSON = """
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
-- What people do to their account stands in the log of each of their tenants.
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

INVITATIONS = """
CREATE FUNCTION portal_invitations_to(credential bytea, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.* FROM portal_holder(credential, at) h, LATERAL portal_invitations(h.user_id, at) i
  WHERE h.tenant_id IS NULL OR i.tenant_id = h.tenant_id
$$;
-- The only way in which a web process makes somebody a member: who was invited, by their own
-- credential. Answers with the membership and the role before, or nothing.
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

DOORS = (
    "portal_account(bytea, timestamptz), portal_account_by_password(text, text),"
    " portal_account_note(bytea, text, jsonb, timestamptz),"
    " portal_memberships_of(bytea, timestamptz), portal_readers(bytea[], timestamptz),"
    " portal_session(bytea, timestamptz),"
    " portal_session_start(bytea, text, timestamptz, timestamptz),"
    " portal_session_update(bytea, text, timestamptz),"
    " portal_session_seen(bytea, timestamptz, text, inet), portal_session_drop(bytea),"
    " portal_sessions_of(bytea, timestamptz), portal_sessions_end(bytea, timestamptz, uuid),"
    " portal_invitations_to(bytea, timestamptz),"
    " portal_invitation_join(bytea, uuid, timestamptz)"
)

GRANTS = f"""
REVOKE EXECUTE ON FUNCTION portal_holder(bytea, timestamptz), portal_person(bytea, timestamptz),
  {DOORS} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {DOORS} TO portal_web, portal_system, portal_ops;
-- What answers to numbers that can be counted through.
REVOKE EXECUTE ON FUNCTION portal_memberships(bigint), portal_invitations(bigint, timestamptz)
  FROM portal_web;
REVOKE ALL ON tenants_session, tenants_user_groups, tenants_user_user_permissions FROM portal_web;
REVOKE ALL ON tenants_user FROM portal_web;
GRANT SELECT, UPDATE (time_zone, mails) ON tenants_user TO portal_web;
REVOKE INSERT, UPDATE ON tenants_membership FROM portal_web;
GRANT UPDATE (role) ON tenants_membership TO portal_web;
REVOKE SELECT, UPDATE ON tenants_apitoken FROM portal_web;
GRANT UPDATE (last_used, revoked) ON tenants_apitoken TO portal_web;
GRANT SELECT (id, tenant_id, user_id, name, prefix, created, expires, last_used, revoked,
  made_with_id) ON tenants_apitoken TO portal_web;
"""

# A token made for a stranger would be a credential of theirs.
TOKENS = """
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


class Migration(migrations.Migration):
    dependencies = [("tenants", "0013_archive")]

    operations = [
        migrations.CreateModel(
            "KnownPerson",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["tenant", "user"], name="known_person_once")
                ]
            },
        ),
        migrations.RemoveField("user", "last_login"),
        migrations.RunSQL(KNOWN + PERSON + SESSIONS + INVITATIONS + TOKENS + GRANTS),
    ]
