"""Strengths of planned starts, what owners are told about them, and grant numbers.

A receipt of a moved start is never changed, and names no booking of another tenant.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import append_only, protect, tenant_key

WALL = "\n".join(
    [
        protect("allocation_movedstart", grants="SELECT"),
        tenant_key("allocation_movedstart", "booking_id", "allocation_booking"),
        tenant_key("allocation_movedstart", "claimant_id", "allocation_booking"),
        append_only("allocation_movedstart"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0002_rules"),
        ("tenants", "0002_wall"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='MovedStart',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('was_from', models.DateTimeField()),
                ('was_until', models.DateTimeField()),
                ('now_from', models.DateTimeField()),
                ('now_until', models.DateTimeField()),
                ('strength', models.CharField(choices=[('firm', 'Firm'), ('guaranteed', 'Guaranteed'), ('expected', 'Expected')], help_text='Of the start that was left.', max_length=10)),
                ('rule', models.CharField(max_length=8)),
                ('overtaken_by', models.CharField(blank=True, help_text='Key of the order by which another booking goes first.', max_length=10)),
                ('is_own', models.BooleanField(help_text="The own organisation's work goes first.")),
                ('reason', models.JSONField(help_text='The reason as the plan gives it.')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.AddField(
            model_name='allocation',
            name='extended_cycle',
            field=models.BigIntegerField(blank=True, help_text='The decision that granted the extension.', null=True),
        ),
        migrations.AddField(
            model_name='allocation',
            name='extended_from',
            field=models.DateTimeField(blank=True, help_text='From here on the row has the grant of its extension.', null=True),
        ),
        migrations.AddField(
            model_name='allocation',
            name='granted_cycle',
            field=models.BigIntegerField(blank=True, help_text='The decision that wrote this row; null for older rows.', null=True),
        ),
        migrations.AddField(
            model_name='allocation',
            name='granted_position',
            field=models.PositiveIntegerField(blank=True, help_text="Its booking's place in the queue of that decision.", null=True),
        ),
        migrations.AddField(
            model_name='allocation',
            name='preemptor',
            field=models.BooleanField(db_default=False, default=False, help_text='Another booking was paused for this row.'),
        ),
        migrations.AddField(
            model_name='booking',
            name='announced_from',
            field=models.DateTimeField(blank=True, help_text='Start of the range that was last announced to the owner.', null=True),
        ),
        migrations.AddField(
            model_name='booking',
            name='announced_until',
            field=models.DateTimeField(blank=True, help_text='Latest start that was announced to the owner.', null=True),
        ),
        migrations.AddField(
            model_name='booking',
            name='planned_strength',
            field=models.CharField(blank=True, choices=[('firm', 'Firm'), ('guaranteed', 'Guaranteed'), ('expected', 'Expected')], help_text='Who may still delay the planned start; null if that is not known.', max_length=10, null=True),
        ),
        migrations.AddConstraint(
            model_name='allocation',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('granted_cycle', None), ('granted_position', None)), models.Q(('granted_cycle__isnull', False), ('granted_position__isnull', False)), _connector='OR'), name='allocation_grant_whole'),
        ),
        migrations.AddConstraint(
            model_name='allocation',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('extended_cycle', None), ('extended_from', None)), models.Q(('extended_cycle__isnull', False), ('extended_from__isnull', False)), _connector='OR'), name='allocation_extension_whole'),
        ),
        migrations.AddConstraint(
            model_name='booking',
            constraint=models.CheckConstraint(condition=models.Q(('planned_strength', None), models.Q(('planned_starts__isnull', False), ('planned_strength__in', ['firm', 'guaranteed', 'expected'])), _connector='OR'), name='booking_strength_of_a_start'),
        ),
        migrations.AddConstraint(
            model_name='booking',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('announced_from', None), ('announced_until', None)), models.Q(('announced_from__isnull', False), ('announced_until__gte', models.F('announced_from')), ('announced_until__isnull', False), ('planned_starts__isnull', False)), _connector='OR'), name='booking_announced_range_sane'),
        ),
        migrations.AddField(
            model_name='movedstart',
            name='booking',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='moved_starts', to='allocation.booking'),
        ),
        migrations.AddField(
            model_name='movedstart',
            name='claimant',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking'),
        ),
        migrations.AddField(
            model_name='movedstart',
            name='decision',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.decision'),
        ),
        migrations.AddField(
            model_name='movedstart',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddIndex(
            model_name='movedstart',
            index=models.Index(fields=['tenant', 'booking', 'id'], name='moved_start_of_booking'),
        ),
        migrations.AddIndex(
            model_name='movedstart',
            index=models.Index(fields=['at'], name='moved_start_by_time'),
        ),
        migrations.AddConstraint(
            model_name='movedstart',
            constraint=models.CheckConstraint(condition=models.Q(('now_from__gt', models.F('was_until')), ('now_until__gte', models.F('now_from')), ('was_until__gte', models.F('was_from'))), name='moved_start_is_later'),
        ),
        migrations.AddConstraint(
            model_name='movedstart',
            constraint=models.CheckConstraint(condition=models.Q(('claimant', None), ('is_own', True), _connector='OR'), name='moved_start_names_own_only'),
        ),
        migrations.RunSQL(WALL),
    ]
