"""The waiting list: entries, offers of places, and the rules that hold for them."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

STEPS = """
INSERT INTO allocation_transition VALUES
  ('requested', 'waitlisted'), ('waitlisted', 'offered'), ('waitlisted', 'scheduled'),
  ('waitlisted', 'expired'), ('waitlisted', 'cancelled'), ('offered', 'waitlisted'),
  ('offered', 'scheduled'), ('offered', 'cancelled') ON CONFLICT DO NOTHING;
"""
# An entry is closed with the step by which its booking leaves the list. A place that was offered
# becomes a booking by an acceptance in time, and is on the calendar as long as the offer is open.
RULES = """
CREATE FUNCTION allocation_close_wait_entry() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  UPDATE allocation_waitentry SET slot = NULL
    WHERE tenant_id = NEW.tenant_id AND booking_id = NEW.id AND slot IS NOT NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER close_wait_entry AFTER UPDATE OF state ON allocation_booking FOR EACH ROW
  WHEN (NEW.waitlist <> ''
    AND NEW.state NOT IN ('requested', 'awaiting_approval', 'waitlisted', 'offered'))
  EXECUTE FUNCTION allocation_close_wait_entry();
CREATE FUNCTION allocation_check_accepted() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM allocation_waitoffer o WHERE o.tenant_id = NEW.tenant_id
      AND o.booking_id = NEW.id AND o.state = 'accepted' AND o.starts = NEW.planned_starts) THEN
    RAISE EXCEPTION 'nobody has accepted this place in time'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_offer_accepted';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_accepted BEFORE UPDATE OF state ON allocation_booking FOR EACH ROW
  WHEN (OLD.state = 'offered' AND NEW.state = 'scheduled')
  EXECUTE FUNCTION allocation_check_accepted();
CREATE FUNCTION allocation_check_wait_offer() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'an offer is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'wait_offer_answered_once';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_wait_offer BEFORE UPDATE ON allocation_waitoffer
  FOR EACH ROW EXECUTE FUNCTION allocation_check_wait_offer();
CREATE FUNCTION allocation_check_offered() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  whose uuid := CASE WHEN TG_TABLE_NAME = 'allocation_booking' THEN NEW.id
                ELSE (to_jsonb(NEW) ->> 'booking_id')::uuid END;
BEGIN
  IF EXISTS (SELECT FROM allocation_booking b WHERE b.id = whose AND b.state = 'offered')
     <> EXISTS (SELECT FROM allocation_waitoffer o WHERE o.booking_id = whose AND o.state = 'open')
  THEN
    RAISE EXCEPTION 'a booking whose place is offered has exactly one open offer'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_offered_once';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER offered_once AFTER INSERT OR UPDATE ON allocation_waitoffer
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION allocation_check_offered();
CREATE CONSTRAINT TRIGGER offered_once_moved AFTER UPDATE OF state ON allocation_booking
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.state <> OLD.state AND 'offered' IN (NEW.state, OLD.state))
  EXECUTE FUNCTION allocation_check_offered();
"""
WALL = "".join(
    [
        protect(
            "allocation_waitentry",
            grants="SELECT, INSERT, UPDATE (slot, windows, expired_count, quiet_until)",
        ),
        protect(
            "allocation_waitoffer", grants="SELECT, UPDATE (state, decided_at, decided_by_id)"
        ),
        tenant_key("allocation_waitentry", "booking_id", "allocation_booking"),
        tenant_key("allocation_waitoffer", "booking_id", "allocation_booking"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0018_change_approvals"),
        ("tenants", "0012_disabled_people"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='booking',
            name='waitlist',
            field=models.CharField(blank=True, choices=[('auto', 'Book it'), ('offer', 'Offer it')], db_default='', default='', help_text='How it waits if its window is full; empty: it is refused.', max_length=5),
        ),
        migrations.CreateModel(
            name='WaitEntry',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('mode', models.CharField(choices=[('auto', 'Book it'), ('offer', 'Offer it')], max_length=5)),
                ('slot', models.PositiveSmallIntegerField(blank=True, help_text='1 to 5: each person has so many entries; null: closed.', null=True)),
                ('windows', models.JSONField(help_text='[from, until] in which all of its time must be.')),
                ('until', models.DateTimeField(help_text='Its last possible start: after that it expires.')),
                ('cost', models.DecimalField(decimal_places=6, help_text='The most that it can cost, held or not.', max_digits=20)),
                ('expired_count', models.PositiveSmallIntegerField(default=0, help_text='Offers in a row that nobody answered; after two it gets none.')),
                ('quiet_until', models.DateTimeField(blank=True, help_text='It is night for its owner: no offer before this time.', null=True)),
                ('created_at', models.DateTimeField()),
                ('booking', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='wait_entry', to='allocation.booking')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['created_at', 'id'],
                'indexes': [models.Index(condition=models.Q(('slot__isnull', False)), fields=['until'], name='wait_entry_due')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('slot__isnull', False)), fields=('tenant', 'owner', 'slot'), name='wait_entries_of_a_person'), models.UniqueConstraint(fields=('tenant', 'id'), name='wait_entry_in_tenant'), models.CheckConstraint(condition=models.Q(('slot', None), models.Q(('slot__gte', 1), ('slot__lte', 5)), _connector='OR'), name='wait_entry_slot_sane'), models.CheckConstraint(condition=models.Q(('cost__gte', 0), ('mode__in', ['auto', 'offer'])), name='wait_entry_sane')],
            },
        ),
        migrations.CreateModel(
            name='WaitOffer',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('gpu_class', models.CharField(max_length=40)),
                ('starts', models.DateTimeField()),
                ('ends', models.DateTimeField()),
                ('made_at', models.DateTimeField()),
                ('until', models.DateTimeField(help_text='It can be accepted before this time.')),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('declined', 'Declined'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn')], default='open', max_length=10)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('booking', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='wait_offers', to='allocation.booking')),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('decision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.decision')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-made_at', 'id'],
                'indexes': [models.Index(condition=models.Q(('state', 'open')), fields=['until'], name='wait_offer_due'), models.Index(fields=['tenant', 'owner', '-made_at'], name='wait_offers_of_a_person')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='wait_offer_in_tenant'), models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('booking',), name='wait_offer_one_open'), models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('tenant', 'owner', 'gpu_class'), name='wait_offer_one_of_a_class'), models.CheckConstraint(condition=models.Q(('made_at__lt', models.F('until')), ('starts__lt', models.F('ends')), ('until__lte', models.F('starts'))), name='wait_offer_times_sane'), models.CheckConstraint(condition=models.Q(models.Q(('decided_at', None), ('decided_by', None), ('state', 'open')), models.Q(('decided_at__gte', models.F('made_at')), ('decided_at__lt', models.F('until')), ('decided_by__isnull', False), ('state__in', ['accepted', 'declined'])), models.Q(('decided_at__gte', models.F('until')), ('decided_by', None), ('state', 'expired')), models.Q(('decided_at__isnull', False), ('state', 'withdrawn')), _connector='OR'), name='wait_offer_decided_in_time')],
            },
        ),
        migrations.RunSQL(WALL + STEPS + RULES),
    ]
