"""Each node has its own account at Redis, and two keys while one is handed over."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = [("allocation", "0004_borrowed")]
    operations = [
        migrations.AddField(
            "node", "link_digest", models.BinaryField(editable=False, max_length=32, null=True)
        ),
        migrations.AddField("node", "key_confirmed", models.PositiveIntegerField(default=1)),
        migrations.RunSQL(
            "UPDATE allocation_node SET key_confirmed = key_version", migrations.RunSQL.noop
        ),
        migrations.AddConstraint(
            "node",
            models.CheckConstraint(
                condition=Q(key_confirmed=F("key_version"))
                | Q(key_confirmed=F("key_version") - 1),
                name="node_two_keys_at_most",
            ),
        ),
    ]
