"""Clusters of Kubernetes are observed, too."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0061_reported_storage'),
    ]

    operations = [
        migrations.AlterField(
            model_name='observedcluster',
            name='engine',
            field=models.CharField(choices=[('slurm', 'Slurm'), ('kubernetes', 'Kubernetes')], default='slurm', max_length=12),
        ),
    ]
