"""Classes say what one unit of theirs is: a GPU, or a core of a host."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0015_views_of_decisions")]

    operations = [
        migrations.AddField(
            model_name="gpuclass",
            name="kind",
            field=models.CharField(
                choices=[("gpu", "GPUs"), ("host", "Host cores")],
                db_default="gpu",
                default="gpu",
                help_text="What one unit of it is: a GPU, or a core of a host.",
                max_length=4,
            ),
        )
    ]
