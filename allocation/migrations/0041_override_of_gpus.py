"""A person's limit of GPUs can be raised for a while."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0040_approvers_and_counters"),
        ("billing", "0010_reference"),
        ("tenants", "0019_policy_hooks"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='override',
            name='override_fits_its_kind',
        ),
        migrations.AlterField(
            model_name='override',
            name='amount',
            field=models.DecimalField(decimal_places=6, help_text='On top of the limit: quota units, GPU-hours, money, seconds, bookings or GPUs.', max_digits=20),
        ),
        migrations.AlterField(
            model_name='override',
            name='kind',
            field=models.CharField(choices=[('quota', 'GPUs at once'), ('gpu_hours', 'GPU-hours'), ('budget', 'Budget'), ('length', 'Length of a booking'), ('notice', 'Time before the start'), ('open_bookings', 'Open bookings'), ('open_gpus', 'GPUs of a person at once')], max_length=16),
        ),
        migrations.AddConstraint(
            model_name='override',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('budget', None), ('gpu_class__isnull', False), ('kind__in', ['quota', 'gpu_hours']), ('tier', None)), models.Q(('budget', None), ('gpu_class', None), ('kind__in', ['length', 'notice']), ('project__isnull', False), ('tier__isnull', False)), models.Q(('budget', None), ('gpu_class', None), ('is_once', False), ('kind__in', ['open_bookings', 'open_gpus'])), models.Q(('budget__isnull', False), ('gpu_class', None), ('is_once', False), ('kind', 'budget'), ('tier', None)), _connector='OR'), name='override_fits_its_kind'),
        ),
    ]
