"""Price books, which never change once they are published, and drafts of them."""

from tenants.platform.reference import reference_of_all
from tenants.platform.wall import append_only, open_table, system_table

BOOKS = (
    open_table("billing_pricebook")
    + append_only("billing_pricebook")
    + reference_of_all("billing_pricebook")
    + open_table("billing_price")
    + append_only("billing_price")
    + reference_of_all("billing_price")
)

# The author of a draft stays, so that nobody becomes the second person by taking a draft over. That is an
# operator whose role publishes prices; the only one of a site publishes their own drafts,
# and one that the author closed in the last week is still there.
DRAFTS = (
    system_table("billing_pricedraft")
    + """
CREATE FUNCTION billing_price_draft_kept() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a decided draft never changes' USING ERRCODE = '23514';
  END IF;
  IF NEW.author_id <> OLD.author_id THEN
    RAISE EXCEPTION 'the author of a draft stays' USING ERRCODE = '23514';
  END IF;
  IF NEW.state = 'published' AND NEW.decided_by_id = NEW.author_id AND EXISTS (
    SELECT FROM tenants_user u JOIN tenants_operatorrole r ON r.user_id = u.id
    WHERE u.id <> NEW.author_id AND r.role IN ('site', 'billing') AND r.since IS NOT NULL
      AND ((u.is_staff AND u.is_active AND r.ended IS NULL)
        OR (r.ended > NEW.decided_at - interval '7 days' AND r.ended_by_id = NEW.author_id)
        OR (NOT u.is_active AND r.ended IS NULL AND EXISTS (
          SELECT FROM tenants_auditentry e
          WHERE e.tenant_id IS NULL AND e.actor_id = NEW.author_id AND e.action = 'account.closed'
            AND e.object_kind = 'user' AND e.object_id = u.id::text
            AND e.at > NEW.decided_at - interval '7 days')))
  ) THEN
    RAISE EXCEPTION 'price_draft_second_person: another operator publishes a draft'
      USING ERRCODE = '23514', CONSTRAINT = 'price_draft_second_person';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER price_draft_kept BEFORE UPDATE ON billing_pricedraft
  FOR EACH ROW EXECUTE FUNCTION billing_price_draft_kept();
"""
)

SQL = BOOKS + DRAFTS
