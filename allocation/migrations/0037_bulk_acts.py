"""Stops of single bookings, which keep what an operator paused from resuming."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import tenant_key


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0036_tier_version_rules"),
        ("tenants", "0018_tier_bounds"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='stop',
            name='stop_names_its_scope',
        ),
        migrations.RemoveConstraint(
            model_name='stop',
            name='stop_open_once',
        ),
        migrations.AddField(
            model_name='stop',
            name='booking',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='stops', to='allocation.booking'),
        ),
        migrations.AlterField(
            model_name='pause',
            name='decision',
            field=models.ForeignKey(help_text='Null for a pause by the ladder of a budget, or by an operator.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.decision'),
        ),
        migrations.AlterField(
            model_name='pausecause',
            name='beneficiary',
            field=models.ForeignKey(help_text='Null: the ladder of a budget, or an operator, asked for the pause.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking'),
        ),
        migrations.AlterField(
            model_name='stop',
            name='scope',
            field=models.CharField(choices=[('site', 'The whole site'), ('tenant', 'A tenant'), ('tier', 'A tier'), ('class', 'A GPU class'), ('booking', 'One paused booking')], max_length=7),
        ),
        migrations.AddConstraint(
            model_name='stop',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(models.Q(('booking', None), ('gpu_class', None), ('tenant', None), ('tier', None)), ('scope', 'site')), models.Q(('booking', None), ('gpu_class', None), ('scope', 'tenant'), ('tenant__isnull', False), ('tier', None)), models.Q(('booking', None), ('gpu_class', None), ('scope', 'tier'), ('tenant', None), ('tier__isnull', False)), models.Q(('booking', None), ('gpu_class__isnull', False), ('scope', 'class'), ('tenant', None), ('tier', None)), models.Q(('booking__isnull', False), ('gpu_class', None), ('scope', 'booking'), ('tenant__isnull', False), ('tier', None)), _connector='OR'), name='stop_names_its_scope'),
        ),
        migrations.AddConstraint(
            model_name='stop',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('scope', 'tenant', 'tier', 'gpu_class', 'booking'), name='stop_open_once', nulls_distinct=False),
        ),
        migrations.RunSQL(tenant_key("allocation_stop", "booking_id", "allocation_booking")),
    ]
