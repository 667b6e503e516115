"""Changes of series: all dates or none, or those that can change."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0027_undo"),
    ]

    operations = [
        migrations.AddField(
            model_name='bookingchange',
            name='is_partial',
            field=models.BooleanField(db_default=False, default=False, help_text='It may be made without the rest of its group.'),
        ),
        migrations.RunSQL(
            "GRANT UPDATE (rule, first) ON allocation_series TO portal_web;",
            "REVOKE UPDATE (rule, first) ON allocation_series FROM portal_web;",
        ),
    ]
