"""The resets that slices made ahead have spared."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0065_trials_of_fleets'),
    ]

    operations = [
        migrations.AddField(
            model_name='sliceahead',
            name='reset_seconds',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Of the reset that its GPU needed first; 0: none.'),
        ),
    ]
