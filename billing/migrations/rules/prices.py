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

# The author of a draft stays, so that nobody becomes the second person by taking a draft over.
DRAFTS = (
    system_table("billing_pricedraft")
    + """
CREATE FUNCTION billing_price_draft_kept() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a decided draft never changes' USING ERRCODE = '23514';
  END IF;
  IF NEW.author_id <> OLD.author_id THEN
    RAISE EXCEPTION 'the author of a draft stays' USING ERRCODE = '23514';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER price_draft_kept BEFORE UPDATE ON billing_pricedraft
  FOR EACH ROW EXECUTE FUNCTION billing_price_draft_kept();
"""
)

SQL = BOOKS + DRAFTS
