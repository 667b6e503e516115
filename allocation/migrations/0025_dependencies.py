"""Dependencies: bookings that wait for others to end."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

WALL = (
    protect("allocation_dependency", grants="SELECT, INSERT")
    + tenant_key("allocation_dependency", "booking_id", "allocation_booking")
    + tenant_key("allocation_dependency", "parent_id", "allocation_booking")
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0024_budget_drains"),
        ("tenants", "0013_tier_fees"),
    ]

    operations = [
        migrations.AddField(
            model_name='booking',
            name='awaits_parents',
            field=models.BooleanField(db_default=False, default=False, help_text='It depends on bookings that are not over.'),
        ),
        migrations.CreateModel(
            name='Dependency',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('needs', models.CharField(choices=[('end', 'End'), ('success', 'Success')], default='end', max_length=8)),
                ('booking', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='dependencies', to='allocation.booking')),
                ('parent', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='dependents', to='allocation.booking')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['booking', 'id'],
                'constraints': [models.UniqueConstraint(fields=('booking', 'parent'), name='dependency_once'), models.CheckConstraint(condition=models.Q(('booking', models.F('parent')), _negated=True), name='dependency_of_another')],
            },
        ),
        migrations.RunSQL(WALL),
    ]
