"""Hand-overs of bookings, without which a booking keeps its owner."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_TABLE = "allocation_handover"
# People offer and answer; workers let offers expire.
RIGHTS = (
    protect(_TABLE, grants="SELECT, INSERT, UPDATE (state, answered, answered_by_id)")
    + tenant_key(_TABLE, "booking_id", "allocation_booking")
    + tenant_key(_TABLE, "made_with_id", "tenants_apitoken")
    + no_right("DELETE", _TABLE)
    + updates_only({_TABLE: "state, answered, answered_by_id"}, roles="portal_system")
    + no_right("INSERT, UPDATE", _TABLE, roles="portal_ops")
    + no_right("INSERT", _TABLE, roles="portal_system")
)

# An offer is of the owner, is answered once, and remembers the transaction of its acceptance.
OFFERS = """
CREATE FUNCTION allocation_check_hand_over() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'open' THEN
      RAISE EXCEPTION 'a hand-over begins as open'
        USING ERRCODE = '23514', CONSTRAINT = 'hand_over_begins_open';
    END IF;
    IF NOT EXISTS (SELECT FROM allocation_booking b WHERE b.tenant_id = NEW.tenant_id
        AND b.id = NEW.booking_id AND b.owner_id = NEW.giver_id) THEN
      RAISE EXCEPTION 'a booking is handed over by its owner'
        USING ERRCODE = '23514', CONSTRAINT = 'hand_over_by_owner';
    END IF;
  ELSIF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a hand-over is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'hand_over_answered_once';
  END IF;
  NEW.accepted_in := CASE WHEN NEW.state = 'accepted' THEN txid_current() END;
  RETURN NEW;
END $$;
CREATE TRIGGER check_hand_over BEFORE INSERT OR UPDATE ON allocation_handover
  FOR EACH ROW EXECUTE FUNCTION allocation_check_hand_over();
REVOKE EXECUTE ON FUNCTION allocation_check_hand_over() FROM PUBLIC;
"""

# Tenant and project never change, and the owner only in the transaction that accepts a hand-over.
OWNER = """
CREATE OR REPLACE FUNCTION portal_booking_keeps_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF (OLD.tenant_id, OLD.project_id) IS DISTINCT FROM (NEW.tenant_id, NEW.project_id)
    OR OLD.ready_at IS NOT NULL OR OLD.state NOT IN ('requested', 'queued', 'scheduled')
    OR NOT EXISTS (
      SELECT FROM public.allocation_handover h WHERE h.tenant_id = OLD.tenant_id
      AND h.booking_id = OLD.id AND h.giver_id = OLD.owner_id AND h.taker_id = NEW.owner_id
      AND h.state = 'accepted' AND h.accepted_in = txid_current()) THEN
    RAISE EXCEPTION 'a booking keeps its owner and project' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0040_facts_of_charges'),
        ('tenants', '0009_rights_to_credentials'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='HandOver',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('revision', models.PositiveIntegerField(help_text="Of the booking's request, as it is offered.")),
                ('note', models.CharField(blank=True, help_text='What the taker reads.', max_length=200)),
                ('created', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('declined', 'Declined'), ('withdrawn', 'Withdrawn'), ('expired', 'Expired')], default='open', max_length=9)),
                ('answered', models.DateTimeField(blank=True, null=True)),
                ('accepted_in', models.BigIntegerField(blank=True, help_text='The transaction of the acceptance; a trigger writes it.', null=True)),
                ('answered_by', models.ForeignKey(blank=True, help_text='Null: nobody, it expired.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('booking', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='hand_overs', to='allocation.booking')),
                ('created_by', models.ForeignKey(help_text='The owner, or a lead of the project.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('giver', models.ForeignKey(help_text='The owner.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('made_with', models.ForeignKey(blank=True, db_constraint=False, help_text='The token that offered it, with which it ends; null: a browser.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken')),
                ('taker', models.ForeignKey(help_text='Who may accept it.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-created', 'id'],
                'indexes': [models.Index(fields=['tenant', 'taker', '-created'], name='hand_over_by_taker'), models.Index(fields=['tenant', 'giver', '-created'], name='hand_over_by_giver'), models.Index(condition=models.Q(('state', 'open')), fields=['until'], name='hand_over_open')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='hand_over_id_in_tenant'), models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('booking',), name='hand_over_open_once'), models.CheckConstraint(condition=models.Q(('giver', models.F('taker')), _negated=True), name='hand_over_to_another'), models.CheckConstraint(condition=models.Q(('until__gt', models.F('created'))), name='hand_over_ends_later'), models.CheckConstraint(condition=models.Q(models.Q(('answered', None), ('answered_by', None), ('state', 'open')), models.Q(('answered__isnull', False), ('answered_by', None), ('state', 'expired')), models.Q(('answered__isnull', False), ('answered_by__isnull', False), ('state__in', ['declined', 'withdrawn'])), models.Q(('answered__isnull', False), ('answered__lt', models.F('until')), ('answered_by', models.F('taker')), ('answered_by__isnull', False), ('state', 'accepted')), _connector='OR'), name='hand_over_answered'), models.CheckConstraint(condition=models.Q(models.Q(('accepted_in__isnull', False), ('state', 'accepted')), models.Q(models.Q(('state', 'accepted'), _negated=True), ('accepted_in', None)), _connector='OR'), name='hand_over_accepted_in')],
            },
        ),
        migrations.RunSQL(RIGHTS + OFFERS + OWNER, migrations.RunSQL.noop),
    ]
