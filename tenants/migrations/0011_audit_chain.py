"""Entries of the platform itself, sign-ins, and the seals that chain what was written."""

import django.db.models.deletion
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

from tenants.platform.wall import append_only, protect

# Nobody changes what was written: the trigger refuses everybody, and these roles may not even ask.
KEPT = """
REVOKE UPDATE, DELETE ON tenants_auditentry, tenants_auditseal FROM portal_system, portal_ops;
"""

SIGN_INS = """
CREATE FUNCTION portal_sign_in_write(person bigint, said text) RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  INSERT INTO tenants_auditentry
    (tenant_id, at, actor_id, action, object_kind, object_id, detail)
  VALUES (NULL, statement_timestamp(), person, said, 'user', coalesce(person::text, ''), '{}')
$$;
REVOKE EXECUTE ON FUNCTION portal_sign_in_write(bigint, text) FROM PUBLIC;

CREATE FUNCTION portal_sign_in_note(wanted text, said text) RETURNS void
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE person bigint := (SELECT id FROM tenants_user WHERE username = wanted);
BEGIN
  IF said NOT IN ('sign_in.failed', 'sign_in.locked_out') THEN
    RAISE EXCEPTION 'a sign-in fails or is locked out' USING ERRCODE = '22023';
  END IF;
  -- Tries that are not even made are many; that they are made is said once in five minutes.
  IF said = 'sign_in.locked_out' AND EXISTS (
    SELECT FROM tenants_auditentry e
    WHERE e.tenant_id IS NULL AND e.action = said AND e.actor_id IS NOT DISTINCT FROM person
      AND e.at > statement_timestamp() - interval '5 minutes')
  THEN
    RETURN;
  END IF;
  PERFORM portal_sign_in_write(person, said);
END $$;

CREATE OR REPLACE FUNCTION portal_session_sign_in(session bytea, wanted text, presented text)
RETURNS bigint
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE person bigint := portal_password_holder(wanted, presented);
BEGIN
  UPDATE tenants_session SET user_id = person WHERE digest = session AND user_id IS NULL;
  IF person IS NULL OR NOT FOUND THEN
    RETURN NULL;
  END IF;
  PERFORM portal_sign_in_write(person, 'sign_in.done');
  RETURN person;
END $$;
REVOKE EXECUTE ON FUNCTION portal_sign_in_note(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_sign_in_note(text, text)
  TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0010_passwords")]

    operations = [
        migrations.AlterField(
            "auditentry",
            "tenant",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to="tenants.tenant",
            ),
        ),
        migrations.CreateModel(
            "AuditSeal",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("source", models.CharField(max_length=20)),
                ("number", models.PositiveBigIntegerField()),
                ("entries", ArrayField(models.BigIntegerField())),
                ("marks", models.BinaryField()),
                ("previous", models.BinaryField(max_length=32)),
                ("digest", models.BinaryField(max_length=32)),
                ("through", models.BigIntegerField()),
                ("sealed", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["source", "tenant", "number"],
                        name="audit_seal_once",
                        nulls_distinct=False,
                    ),
                ],
                "indexes": [
                    models.Index(fields=["source", "sealed"], name="audit_seal_latest"),
                ],
            },
        ),
        migrations.RunSQL(
            protect("tenants_auditseal", grants="SELECT")
            + append_only("tenants_auditseal")
            + KEPT
            + SIGN_INS
        ),
    ]
