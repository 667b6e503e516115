"""Decisions name the commit and the libraries that made them: longer than before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Room for a commit and four versions."""

    dependencies = [("allocation", "0031_node_examination")]

    operations = [
        migrations.AlterField(
            "decision",
            "software",
            models.CharField(
                max_length=160,
                help_text="The commit of the code, and the versions of what it solves with.",
            ),
        ),
    ]
