"""Cuts of guarantees of labs and projects."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0066_resets_ahead'),
        ('tenants', '0013_inner_guarantees'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='limitcut',
            name='limit_cut_of_a_tenants_guarantee',
        ),
        migrations.AlterField(
            model_name='limitcut',
            name='of_guarantee',
            field=models.BooleanField(db_default=False, default=False, help_text='It is what the owner is guaranteed.'),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('before_units', None), ('of_guarantee', False)), models.Q(('before_units__isnull', False), ('limit_units__isnull', False), ('of_guarantee', True), ('of_persons', False)), _connector='OR'), name='limit_cut_of_a_guarantee'),
        ),
    ]
