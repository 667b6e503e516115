"""Whether cost decides among the classes of a booking."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0016_policy_shadows'),
    ]

    operations = [
        migrations.AddField(
            model_name='booking',
            name='by_cost',
            field=models.BooleanField(db_default=False, default=False, help_text='Its project lets the portal take the class that costs least, not the first end.'),
        ),
    ]
