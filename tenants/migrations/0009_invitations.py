"""Invitations: who is asked into a tenant becomes a member by saying yes."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import protect, tenant_key

# What a person is invited to, before they are in the tenant. An invitation holds as long as who
# made it may still give its role.
DOOR = """
CREATE FUNCTION portal_invitations(person bigint, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.id, t.id, t.slug, t.name, coalesce(p.name, ''), i.role,
         coalesce(nullif(trim(b.first_name || ' ' || b.last_name), ''), b.username), i.expires
  FROM tenants_user u
  JOIN tenants_invitation i ON i.state = 'open' AND i.expires > at
    AND i.invitee IN (lower(u.username), nullif(lower(u.email), ''))
  JOIN tenants_tenant t ON t.id = i.tenant_id AND t.is_open
  JOIN tenants_user b ON b.id = i.made_by_id AND b.is_active
  LEFT JOIN tenants_project p ON p.id = i.project_id
  WHERE u.id = person AND u.is_active AND coalesce(p.is_open, true)
    AND (b.is_staff OR EXISTS (
      SELECT FROM tenants_membership m
      WHERE m.tenant_id = i.tenant_id AND m.user_id = b.id
        AND (m.role = 'tenant_admin' OR (m.role = 'lead' AND m.project_id = i.project_id))))
  ORDER BY i.created, i.id
$$;
REVOKE EXECUTE ON FUNCTION portal_invitations(bigint, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_invitations(bigint, timestamptz)
  TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_token_makers")]

    operations = [
        migrations.CreateModel(
            "Invitation",
            [
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("viewer", "Viewer"),
                            ("researcher", "Researcher"),
                            ("lead", "Project lead"),
                            ("tenant_admin", "Tenant admin"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "invitee",
                    models.CharField(
                        help_text="A sign-in name or an e-mail address, as typed, in small letters.",
                        max_length=254,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "No answer yet"),
                            ("accepted", "Accepted"),
                            ("declined", "Declined"),
                            ("revoked", "Revoked"),
                        ],
                        default="open",
                        max_length=8,
                    ),
                ),
                ("created", models.DateTimeField()),
                ("expires", models.DateTimeField()),
                ("decided", models.DateTimeField(blank=True, null=True)),
                (
                    "made_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="tenants.project",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=Q(state="open"),
                        fields=("tenant", "project", "invitee"),
                        name="invitation_open_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=Q(role="tenant_admin", project=None)
                        | (
                            Q(role__in=["viewer", "researcher", "lead"])
                            & Q(project__isnull=False)
                        ),
                        name="invitation_role_fits",
                    ),
                    models.CheckConstraint(
                        condition=Q(state="open", decided=None)
                        | (
                            Q(state__in=["accepted", "declined", "revoked"])
                            & Q(decided__isnull=False)
                        ),
                        name="invitation_decided_once",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=Q(state="open"), fields=["invitee"], name="invitation_waiting"
                    )
                ],
            },
        ),
        migrations.AlterField("mail", "booking", models.UUIDField(blank=True, null=True)),
        migrations.AddField("mail", "invitation", models.UUIDField(blank=True, null=True)),
        migrations.AddConstraint(
            "mail",
            models.CheckConstraint(
                condition=Q(booking__isnull=False, invitation=None)
                | Q(booking=None, invitation__isnull=False),
                name="mail_about_one",
            ),
        ),
        migrations.RunSQL(
            protect("tenants_invitation", grants="SELECT, INSERT, UPDATE")
            + tenant_key("tenants_invitation", "project_id", "tenants_project")
            + DOOR,
            reverse_sql=migrations.RunSQL.noop,
        ),
    ]
