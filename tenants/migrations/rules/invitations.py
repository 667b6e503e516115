"""Invitations, and links in mails: of invitations and to set a password."""

from tenants.platform.wall import callable_by, protect, system_table, tenant_key

# An invitation is valid as long as its maker may give its role. Invitations of a person or a number
# are not for a web process, which could count through the numbers.
INVITATIONS = (
    protect("tenants_invitation", grants="SELECT, INSERT, UPDATE")
    + tenant_key("tenants_invitation", "project_id", "tenants_project")
    + """
CREATE FUNCTION portal_invitation_offer(wanted uuid, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.id, t.id, t.slug, t.name, coalesce(p.name, ''), i.role,
         coalesce(nullif(trim(b.first_name || ' ' || b.last_name), ''), b.username), i.expires
  FROM tenants_invitation i
  JOIN tenants_tenant t ON t.id = i.tenant_id AND t.is_open
  JOIN tenants_user b ON b.id = i.made_by_id AND b.is_active
  LEFT JOIN tenants_project p ON p.id = i.project_id
  WHERE i.id = wanted AND i.state = 'open' AND i.expires > at AND coalesce(p.is_open, true)
    AND (i.made_with_id IS NULL OR portal_token_lives(i.made_with_id, at))
    AND (b.is_staff OR EXISTS (
      SELECT FROM portal_memberships(b.id) m
      WHERE m.tenant_id = i.tenant_id
        AND (m.role = 'tenant_admin' OR (m.role = 'lead' AND m.project_id = i.project_id))))
$$;
CREATE FUNCTION portal_invitations(person bigint, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT o.*
  FROM tenants_user u
  JOIN tenants_invitation i ON i.state = 'open'
    AND i.invitee IN (lower(u.username), nullif(lower(u.email), ''))
  CROSS JOIN LATERAL portal_invitation_offer(i.id, at) o
  WHERE u.id = person AND u.is_active
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
    + callable_by(
        "portal_invitation_offer(uuid, timestamptz)",
        "portal_invitations(bigint, timestamptz)",
        roles="portal_system, portal_ops",
    )
    + callable_by(
        "portal_invitations_to(bytea, timestamptz)",
        "portal_invitation_join(bytea, uuid, timestamptz)",
    )
)

# The secrets of links are made by the program that sends mail, which stores their hashes. A web
# process asks by the hash of the secret that a request carried, as with sessions and tokens.
LINKS = (
    system_table("tenants_maillink")
    + system_table("tenants_passwordreset")
    + """
GRANT INSERT ON tenants_passwordreset TO portal_web;
CREATE FUNCTION portal_address_is_taken(address text) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM tenants_user u
                 WHERE lower(u.email) = lower(address) OR lower(u.username) = lower(address))
$$;
CREATE FUNCTION portal_invitation_by_link(link bytea, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz,
               invitee text, has_account boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT o.*, i.invitee, portal_address_is_taken(i.invitee)
  FROM tenants_maillink l
  JOIN tenants_invitation i ON i.id = l.invitation_id
  CROSS JOIN LATERAL portal_invitation_offer(i.id, at) o
  WHERE l.digest = link
$$;
-- Creates the account of an invited address. Returns `made`, `taken` (the name) or `gone`.
CREATE FUNCTION portal_account_by_invitation(
  link bytea, wanted text, chosen text, called text, at timestamptz) RETURNS text
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  offer record;
  made bigint;
BEGIN
  PERFORM FROM tenants_invitation i JOIN tenants_maillink l ON l.invitation_id = i.id
    WHERE l.digest = link FOR UPDATE OF i;
  SELECT * INTO offer FROM portal_invitation_by_link(link, at);
  IF NOT FOUND OR offer.has_account OR chosen NOT LIKE '%$%$%' THEN
    RETURN 'gone';
  END IF;
  IF EXISTS (SELECT FROM tenants_user u WHERE lower(u.username) = lower(wanted)) THEN
    RETURN 'taken';
  END IF;
  INSERT INTO tenants_user (username, first_name, last_name, email, is_staff, is_superuser,
                            is_active, date_joined, time_zone, mails)
    VALUES (wanted, called, '', offer.invitee, false, false, true, at, 'Europe/Berlin', 'all')
    ON CONFLICT (username) DO NOTHING RETURNING id INTO made;
  IF made IS NULL THEN
    RETURN 'taken';
  END IF;
  INSERT INTO tenants_password (user_id, encoded) VALUES (made, chosen);
  INSERT INTO tenants_auditentry (tenant_id, at, actor_id, action, object_kind, object_id, detail)
    VALUES (NULL, at, made, 'account.created', 'user', made::text,
            jsonb_build_object('invitation', offer.invitation_id));
  RETURN 'made';
END $$;
CREATE FUNCTION portal_invitation_decline(link bytea, at timestamptz) RETURNS boolean
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE offer record;
BEGIN
  SELECT * INTO offer FROM portal_invitation_by_link(link, at);
  UPDATE tenants_invitation SET state = 'declined', decided = at
    WHERE id = offer.invitation_id AND state = 'open';
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO tenants_auditentry (tenant_id, at, actor_id, action, object_kind, object_id, detail)
    VALUES (offer.tenant_id, at, NULL, 'invitation.declined', 'invitation',
            offer.invitation_id::text, '{}');
  RETURN true;
END $$;
CREATE FUNCTION portal_reset_by_link(link bytea, at timestamptz) RETURNS text
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.username FROM tenants_maillink l JOIN tenants_user u ON u.id = l.user_id AND u.is_active
  WHERE l.digest = link AND l.used IS NULL AND l.expires > at
$$;
-- Sets the password of the link's person, ends their sessions and uses up all their reset links.
CREATE FUNCTION portal_password_by_link(link bytea, chosen text, at timestamptz) RETURNS boolean
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE person bigint;
BEGIN
  SELECT u.id INTO person
    FROM tenants_maillink l JOIN tenants_user u ON u.id = l.user_id AND u.is_active
    WHERE l.digest = link AND l.used IS NULL AND l.expires > at FOR UPDATE OF l;
  IF NOT FOUND OR chosen NOT LIKE '%$%$%' THEN
    RETURN false;
  END IF;
  UPDATE tenants_maillink SET used = at WHERE user_id = person AND used IS NULL;
  INSERT INTO tenants_password (user_id, encoded) VALUES (person, chosen)
    ON CONFLICT (user_id) DO UPDATE SET encoded = excluded.encoded;
  DELETE FROM tenants_session WHERE user_id = person;
  PERFORM portal_sign_in_write(person, 'user.password_reset');
  INSERT INTO tenants_auditentry (tenant_id, at, actor_id, action, object_kind, object_id, detail)
    SELECT DISTINCT m.tenant_id, at, person, 'user.password_reset', 'user', person::text,
           '{}'::jsonb
    FROM tenants_membership m JOIN tenants_tenant t ON t.id = m.tenant_id AND t.is_open
    WHERE m.user_id = person;
  RETURN true;
END $$;
"""
    + callable_by("portal_address_is_taken(text)", roles="portal_system, portal_ops")
    + callable_by(
        "portal_invitation_by_link(bytea, timestamptz)",
        "portal_account_by_invitation(bytea, text, text, text, timestamptz)",
        "portal_invitation_decline(bytea, timestamptz)",
        "portal_reset_by_link(bytea, timestamptz)",
        "portal_password_by_link(bytea, text, timestamptz)",
    )
)

SQL = INVITATIONS + LINKS
