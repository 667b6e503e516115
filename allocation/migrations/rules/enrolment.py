"""An enrolment token ends with the operator's token that made it. A later change of `fleet`."""

SQL = """
CREATE OR REPLACE FUNCTION portal_enrolment_open(wanted bytea, at timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM allocation_enrolmenttoken
    WHERE digest = wanted AND used_at IS NULL AND expires > at
      AND (made_with_id IS NULL OR portal_token_lives(made_with_id, at)))
$$;
"""
