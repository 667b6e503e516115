"""Says whose claims rest after a cancelled one."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0004_times'),
    ]

    operations = [
        migrations.AlterField(
            model_name='booking',
            name='cooling_until',
            field=models.DateTimeField(blank=True, help_text='It was cancelled after others had notice for it: until then nobody is paused for its owner on its class.', null=True),
        ),
    ]
