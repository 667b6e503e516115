"""Indexes for searches in a large log."""

from django.db import migrations, models

# The expressions of `tenants.services.audit_log`: one index for each place of a name.
NAMES = """
CREATE INDEX audit_of_object ON tenants_auditentry (tenant_id, upper(object_id));
CREATE INDEX audit_of_label ON tenants_auditentry (tenant_id, upper(detail ->> 'label'))
  WHERE upper(detail ->> 'label') IS NOT NULL;
""" + "".join(
    f"""
CREATE INDEX audit_of_{name} ON tenants_auditentry
  (tenant_id, upper(detail #>> '{{after,{name}}}'))
  WHERE upper(detail #>> '{{after,{name}}}') IS NOT NULL;
"""
    for name in ("where", "for", "tenant")
)


class Migration(migrations.Migration):

    dependencies = [
        ("tenants", "0026_announcements"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='auditentry',
            name='audit_latest',
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['tenant', '-at', '-id'], name='audit_newest'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['tenant', 'actor', '-at', '-id'], name='audit_by_actor'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['tenant', 'object_kind', '-at', '-id'], name='audit_by_kind'),
        ),
        migrations.RunSQL(NAMES),
    ]
