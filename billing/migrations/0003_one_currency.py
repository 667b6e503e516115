"""A site has one currency."""

from django.db import migrations

# A site that has changed its currency keeps its former price books: only those from the newest one on count.
_ADD = """
DO $$
BEGIN
  EXECUTE format(
    'ALTER TABLE billing_pricebook ADD CONSTRAINT price_book_one_currency'
    ' EXCLUDE USING gist (currency WITH <>) WHERE (version >= %s)',
    (SELECT coalesce(max(version), 0) FROM billing_pricebook));
END $$;
"""


class Migration(migrations.Migration):
    """All price books from now on have the currency of the newest one."""

    dependencies = [("billing", "0002_rules")]

    operations = [
        migrations.RunSQL(_ADD, "ALTER TABLE billing_pricebook DROP CONSTRAINT price_book_one_currency;")
    ]
