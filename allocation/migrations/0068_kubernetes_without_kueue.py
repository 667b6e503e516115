from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0067_cuts_of_inner_guarantees'),
    ]

    operations = [
        migrations.AlterField(
            model_name='node',
            name='engine',
            field=models.CharField(choices=[('device', 'Agent'), ('slurm', 'Slurm'), ('kubernetes', 'Kubernetes'), ('quota', 'Kubernetes without Kueue')], db_default='device', default='device', help_text='Who gives its GPUs to bookings: the agent itself, or another scheduler for it.', max_length=10),
        ),
    ]
