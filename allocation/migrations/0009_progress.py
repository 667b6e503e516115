"""What programs report about their runs."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key


# People's programs write it through the web; nobody else changes it.
RIGHTS = (
    protect(
        "allocation_progress",
        grants="SELECT, INSERT, UPDATE (step, of, unit, metrics, at, anchor_at,"
        " anchor_step, mark_at, mark_step)",
    )
    + tenant_key("allocation_progress", "booking_id", "allocation_booking")
    + no_right("UPDATE, DELETE", "allocation_progress")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0008_maintenance_skipped'),
        ('tenants', '0007_rights'),
    ]

    operations = [
        migrations.CreateModel(
            name='Progress',
            fields=[
                ('booking', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='progress', serialize=False, to='allocation.booking')),
                ('step', models.FloatField(help_text='Steps that are done.')),
                ('of', models.FloatField(blank=True, help_text='Steps in all; null: not said.', null=True)),
                ('unit', models.CharField(max_length=24)),
                ('metrics', models.JSONField(help_text='Numbers by name, such as a loss.')),
                ('at', models.DateTimeField()),
                ('anchor_at', models.DateTimeField(help_text='From here on the rate is measured.')),
                ('anchor_step', models.FloatField()),
                ('mark_at', models.DateTimeField(help_text='The next anchor.')),
                ('mark_step', models.FloatField()),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'booking'), name='progress_in_tenant'), models.CheckConstraint(condition=models.Q(('step__gte', 0), ('step__lte', 1000000000000000.0)), name='progress_is_a_number'), models.CheckConstraint(condition=models.Q(('of', None), models.Q(('of__gt', 0), ('of__gte', models.F('step')), ('of__lte', 1000000000000000.0)), _connector='OR'), name='progress_of_all'), models.CheckConstraint(condition=models.Q(('anchor_at__lte', models.F('mark_at')), ('mark_at__lte', models.F('at'))), name='progress_in_order')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
