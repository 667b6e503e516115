"""Sign-in: its second factors, and the log that the database keeps of it."""

from tenants.platform.wall import callable_by, system_table

# Web processes ask whether the second factor of a session is fresh; they can't check one.
FACTORS = (
    system_table("tenants_secondfactor")
    + system_table("tenants_passkey")
    + system_table("tenants_passkeychallenge")
    + """
CREATE FUNCTION portal_has_second_factor(person bigint) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM tenants_secondfactor f
                 WHERE f.user_id = person AND f.confirmed IS NOT NULL)
    OR EXISTS (SELECT FROM tenants_passkey p WHERE p.user_id = person)
$$;
CREATE FUNCTION portal_second_factor_needed(wanted text, presented text) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT portal_has_second_factor(portal_password_holder(wanted, presented))
$$;
CREATE FUNCTION portal_second_factor_of(credential bytea, at timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT portal_has_second_factor(portal_person(credential, at))
$$;
CREATE FUNCTION portal_factor_is_fresh(credential bytea, since timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce(bool_and(s.verified > since OR NOT portal_has_second_factor(s.user_id)), false)
  FROM tenants_session s WHERE s.digest = credential
$$;
"""
    + callable_by("portal_has_second_factor(bigint)", roles="portal_system, portal_ops")
    + callable_by(
        "portal_second_factor_needed(text, text)",
        "portal_second_factor_of(bytea, timestamptz)",
        "portal_factor_is_fresh(bytea, timestamptz)",
    )
)

# Whoever has a second factor is signed in by the operators' process, which can check it. With the
# password alone the session only waits. Lock-outs are logged at most once in five minutes.
SIGN_INS = (
    """
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
  IF portal_has_second_factor(person) THEN
    UPDATE tenants_session SET pending_id = person WHERE digest = session AND user_id IS NULL;
    RETURN NULL;
  END IF;
  UPDATE tenants_session SET user_id = person WHERE digest = session AND user_id IS NULL;
  IF person IS NULL OR NOT FOUND THEN
    RETURN NULL;
  END IF;
  PERFORM portal_sign_in_write(person, 'sign_in.done');
  RETURN person;
END $$;
"""
    + callable_by("portal_sign_in_write(bigint, text)", roles="")
    + callable_by("portal_sign_in_note(text, text)", "portal_session_sign_in(bytea, text, text)")
)

SQL = FACTORS + SIGN_INS
