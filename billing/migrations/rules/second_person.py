"""Drafts of prices: who publishes them. A site's only operator publishes their own."""

SQL = """
CREATE OR REPLACE FUNCTION billing_price_draft_kept() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a decided draft never changes' USING ERRCODE = '23514';
  END IF;
  IF NEW.author_id <> OLD.author_id THEN
    RAISE EXCEPTION 'the author of a draft stays' USING ERRCODE = '23514';
  END IF;
  IF NEW.state = 'published' AND NEW.decided_by_id = NEW.author_id AND EXISTS (
    SELECT FROM tenants_user WHERE is_staff AND is_active AND id <> NEW.author_id
  ) THEN
    RAISE EXCEPTION 'price_draft_second_person: another operator publishes a draft'
      USING ERRCODE = '23514', CONSTRAINT = 'price_draft_second_person';
  END IF;
  RETURN NEW;
END $$;
"""
