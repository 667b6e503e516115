"""Ends with a token the calendars, stand-ins and mappings of Jira projects that it made."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import callable_by, tenant_key

KEYS = "".join(
    tenant_key(f"allocation_{table}", "made_with_id", "tenants_apitoken")
    for table in ("calendarfeed", "standin", "jiraproject")
)

# The function without a time is that of the release before.
FEEDS = """
CREATE FUNCTION portal_feed(wanted bytea, at timestamptz)
RETURNS TABLE (owner_id bigint, tenant_slug text, feed_project_id uuid, gpu_class text,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT f.owner_id, t.slug, f.project_id, f.gpu_class_id,
         m.tenant_id, m.project_id, m.role, m.person, m.time_zone
  FROM allocation_calendarfeed f
  JOIN tenants_tenant t ON t.id = f.tenant_id
  JOIN LATERAL portal_memberships(f.owner_id) m ON m.tenant_id = f.tenant_id
  WHERE f.digest = wanted AND f.revoked IS NULL
    AND (f.made_with_id IS NULL OR portal_token_lives(f.made_with_id, at))
$$;
CREATE OR REPLACE FUNCTION portal_feed(wanted bytea)
RETURNS TABLE (owner_id bigint, tenant_slug text, feed_project_id uuid, gpu_class text,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT * FROM portal_feed(wanted, statement_timestamp())
$$;
""" + callable_by("portal_feed(bytea, timestamptz)")

ACTS = """
CREATE OR REPLACE FUNCTION allocation_check_approval_act() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF EXISTS (SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
             AND a.id = NEW.approval_id AND a.asker_id IN (NEW.person_id, NEW.principal_id)) THEN
    RAISE EXCEPTION 'nobody decides their own request'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_by_another';
  END IF;
  IF EXISTS (SELECT FROM allocation_approvalact act WHERE act.tenant_id = NEW.tenant_id
             AND act.approval_id = NEW.approval_id
             AND (act.person_id = NEW.principal_id OR act.principal_id = NEW.person_id
                  OR act.principal_id = NEW.principal_id)) THEN
    RAISE EXCEPTION 'nobody decides two steps'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_once_for_all';
  END IF;
  IF NEW.principal_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM allocation_standin s WHERE s.tenant_id = NEW.tenant_id
      AND s.person_id = NEW.person_id AND s.approver_id = NEW.principal_id
      AND s.starts <= NEW.at AND s.until > NEW.at AND s.ended IS NULL
      AND (s.made_with_id IS NULL OR portal_token_lives(s.made_with_id, NEW.at))) THEN
    RAISE EXCEPTION 'nobody has named this person'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_named';
  END IF;
  RETURN NEW;
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0010_progress_of_nodes'),
        ('tenants', '0007_rights'),
    ]

    operations = [
        *(
            migrations.AddField(
                model_name=model,
                name='made_with',
                field=models.ForeignKey(blank=True, db_constraint=False, help_text=text, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
            )
            for model, text in (
                ('calendarfeed', 'The token that made it, with which it ends; null: a browser.'),
                ('standin', 'The token that named them, with which it ends; null: a browser.'),
                ('jiraproject', 'The token that set it, with which it ends; null: a browser.'),
            )
        ),
        migrations.RunSQL(KEYS + FEEDS + ACTS, migrations.RunSQL.noop),
    ]
