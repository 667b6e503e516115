"""The bytes of old decisions may move into a file; all else of a decision stays as it is."""

from django.db import migrations, models

ARCHIVED = """
CREATE FUNCTION allocation_decision_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
DECLARE moved text[] := '{snapshot,plan,archived_in,snapshot_archived,plan_archived}';
BEGIN
  IF TG_OP = 'UPDATE' AND current_user = 'portal_owner'
    AND current_setting('portal.archiving', true) = 'on'
    AND OLD.archived_in = '' AND NEW.archived_in <> '' AND NEW.snapshot = '' AND NEW.plan = ''
    AND NEW.snapshot_archived = encode(sha256(OLD.snapshot), 'hex')
    AND NEW.plan_archived = encode(sha256(OLD.plan), 'hex')
    AND to_jsonb(NEW) - moved = to_jsonb(OLD) - moved
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
DROP TRIGGER append_only ON allocation_decision;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON allocation_decision
  FOR EACH ROW EXECUTE FUNCTION allocation_decision_kept();
CREATE INDEX decision_to_archive ON allocation_decision (id) WHERE archived_in = '';
"""


def _text(length: int, help_text: str = "") -> models.CharField:
    return models.CharField(max_length=length, default="", db_default="", help_text=help_text)


class Migration(migrations.Migration):
    """Where the bytes are, and their SHA-256, which the chain of decisions is over."""

    dependencies = [("allocation", "0027_operations"), ("tenants", "0013_archive")]

    operations = [
        migrations.AddField(
            "decision",
            "archived_in",
            _text(120, "The file of the archive that has the bytes of snapshot and plan."),
        ),
        migrations.AddField("decision", "snapshot_archived", _text(64)),
        migrations.AddField("decision", "plan_archived", _text(64)),
        migrations.RunSQL(ARCHIVED),
    ]
