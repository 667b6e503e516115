"""Cuts of guarantees, and of limits at some times."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0057_mailed_months'),
        ('tenants', '0011_dated_guarantees'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='limitcut',
            name='limit_cut_open_once',
        ),
        migrations.AddField(
            model_name='limitcut',
            name='before_units',
            field=models.BigIntegerField(blank=True, help_text='What a guarantee was: what was above it is not concerned.', null=True),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='of_guarantee',
            field=models.BooleanField(db_default=False, default=False, help_text='It is what the tenant is guaranteed.'),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='since',
            field=models.DateTimeField(blank=True, help_text='Of a guarantee between dates.', null=True),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='source',
            field=models.UUIDField(blank=True, help_text='The limit at some times, or guarantee between dates.', null=True),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.UniqueConstraint(condition=models.Q(('ended', None)), fields=('tenant', 'gpu_class', 'project', 'lab', 'of_persons', 'person', 'of_guarantee', 'source'), name='limit_cut_open_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('before_units', None), ('of_guarantee', False)), models.Q(('before_units__isnull', False), ('lab', None), ('limit_units__isnull', False), ('of_guarantee', True), ('of_persons', False), ('project', None)), _connector='OR'), name='limit_cut_of_a_tenants_guarantee'),
        ),
    ]
