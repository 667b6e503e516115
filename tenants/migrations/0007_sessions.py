"""Sessions that can be listed and ended, and that end with a password or an account."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import open_table

# Whatever changes the password or closes the account, in whichever program: the sessions are gone
# with the same commit. A definer function, as not everybody who may do that may touch sessions.
SESSIONS_END = """
CREATE FUNCTION portal_sessions_end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  DELETE FROM tenants_session WHERE user_id = NEW.id;
  RETURN NULL;
END $$;
CREATE TRIGGER sessions_end AFTER UPDATE OF password, is_active ON tenants_user
  FOR EACH ROW WHEN (OLD.password IS DISTINCT FROM NEW.password OR NOT NEW.is_active)
  EXECUTE FUNCTION portal_sessions_end();
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_mail")]

    operations = [
        migrations.CreateModel(
            "Session",
            [
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                (
                    "data",
                    models.TextField(help_text="Signed JSON, as Django's sessions encode it."),
                ),
                ("created", models.DateTimeField()),
                ("expires", models.DateTimeField(db_index=True)),
                ("last_seen", models.DateTimeField(help_text="Written at most once a minute.")),
                (
                    "device",
                    models.CharField(
                        blank=True, help_text="As in Firefox on Linux.", max_length=80
                    ),
                ),
                ("address", models.GenericIPAddressField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.RunSQL(
            open_table("tenants_session", "SELECT, INSERT, UPDATE, DELETE")
            + SESSIONS_END
            + "DROP TABLE IF EXISTS django_session;",
            reverse_sql=migrations.RunSQL.noop,
        ),
    ]
