"""A site has one currency."""

from django.db import migrations


class Migration(migrations.Migration):
    """All price books have the currency of the first one."""

    dependencies = [("billing", "0002_rules")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE billing_pricebook ADD CONSTRAINT price_book_one_currency"
            " EXCLUDE USING gist (currency WITH <>);",
            "ALTER TABLE billing_pricebook DROP CONSTRAINT price_book_one_currency;",
        )
    ]
