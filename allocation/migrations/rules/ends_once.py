"""What has ended stays ended, for every role: a revoked token, a used link, an ended stand-in."""

from tenants.platform.wall import callable_by

# A secret or right by its table, and the column with the time at which it ended or was used up.
ENDINGS = {
    "tenants_apitoken": "revoked",
    "tenants_invitation": "decided",
    "tenants_maillink": "used",
    "tenants_operatoraccess": "ended_at",
    "tenants_serviceaccount": "closed",
    "allocation_calendarfeed": "revoked",
    "allocation_enrolmenttoken": "used_at",
    "allocation_notebook": "ended_at",
    "allocation_standin": "ended",
}

SQL = (
    """
CREATE FUNCTION portal_ended() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  RAISE EXCEPTION 'what has ended never begins anew: %', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
"""
    + "".join(
        f"""
CREATE TRIGGER ends_once BEFORE UPDATE OF {column} ON {table} FOR EACH ROW
  WHEN (OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} > OLD.{column}))
  EXECUTE FUNCTION portal_ended();
"""
        for table, column in ENDINGS.items()
    )
    + callable_by("portal_ended()", roles="")
)
