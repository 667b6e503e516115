"""Saved views of decisions and of the timeline."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0014_tier_guarantees'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='savedview',
            name='saved_view_of_a_list',
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.CheckConstraint(condition=models.Q(('list__in', ['bookings', 'decisions', 'fleet', 'log', 'timeline'])), name='saved_view_of_a_list'),
        ),
    ]
