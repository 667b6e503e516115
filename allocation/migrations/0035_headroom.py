"""Hours in which GPUs were kept free, and a policy that has them by class. They name no tenant."""

import django.db.models.deletion
from django.db import migrations, models

from allocation.migrations.rules.solver import DOCUMENT
from tenants.platform.wall import no_right, open_table

HOURS = "allocation_headroomhour"
RIGHTS = open_table(HOURS) + no_right("DELETE", HOURS) + no_right("INSERT, UPDATE, DELETE", HOURS, roles="portal_ops")
DROP = "ALTER TABLE allocation_policyversion DROP CONSTRAINT policy_of_whole_numbers;"


def document(*names: str) -> str:
    """The rule for documents that may have objects of whole numbers under these names."""
    checks = "".join(
        f"""
  AND coalesce(jsonb_typeof(document->'{name}'), 'object') = 'object'
  AND NOT jsonb_path_exists(document, '$.{name}.* ? (@.type() != "number" || @ < 0 || @ != @.floor())')"""
        for name in names
    )
    without = "".join(f"'{name}' - " for name in names)
    rule = DOCUMENT.replace("document - '", f"document - {without}'")
    return rule.replace("jsonb_typeof(document) = 'object'", f"jsonb_typeof(document) = 'object'{checks}")


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0034_kubernetes'),
        ('tenants', '0008_directory_ids'),
    ]

    operations = [
        migrations.RunSQL(
            f"{DROP}\n{document('borrow_windows', 'headroom', 'headroom_for')}",
            f"{DROP}\n{document('borrow_windows')}",
        ),
        migrations.CreateModel(
            name='HeadroomHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(help_text="The hour's begin.")),
                ('gpus', models.PositiveIntegerField(help_text='GPUs that were kept free.')),
                ('there', models.PositiveIntegerField(help_text='GPUs of the class.')),
                ('counted', models.BooleanField(default=False, help_text='Whether the hour is over and counted.')),
                ('served', models.PositiveIntegerField(default=0, help_text='Short bookings that started at once on GPUs that were kept free.')),
                ('idle', models.FloatField(default=0, help_text='GPU-hours of them that nobody used.')),
                ('waited', models.FloatField(default=0, help_text='Of these, while others waited for the class.')),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
            ],
            options={
                'ordering': ['gpu_class', 'at'],
                'constraints': [models.UniqueConstraint(fields=('gpu_class', 'at'), name='headroom_hour_once'), models.CheckConstraint(condition=models.Q(('idle__gte', 0), ('waited__gte', 0)), name='headroom_hour_positive')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
