"""Messages: mails, notifications, webhooks, chat and announcements."""

from tenants.platform.wall import callable_by, open_table, protect, tenant_key

# The relay writes notifications; their readers only mark them.
MAILS = (
    protect("tenants_outboxmessage", grants="SELECT, INSERT")
    + protect("tenants_mail", grants="SELECT")
    + protect("tenants_notification", grants="SELECT, UPDATE (read)")
    + protect("tenants_notificationsettings", grants="SELECT, INSERT, UPDATE")
)

# Only the relay publishes, so that ids are in the order of commits.
WEBHOOKS = (
    protect("tenants_publishedevent", grants="SELECT")
    + tenant_key("tenants_publishedevent", "project_id", "tenants_project")
    + protect("tenants_webhook")
    + tenant_key("tenants_webhook", "project_id", "tenants_project")
    + """
ALTER TABLE tenants_webhook ADD CONSTRAINT webhook_labels_sane
  CHECK (labels = '{}' OR portal_labels_sane(labels));
"""
    + protect("tenants_webhookdelivery")
    + tenant_key("tenants_webhookdelivery", "webhook_id", "tenants_webhook")
    + tenant_key("tenants_webhookdelivery", "event_id", "tenants_publishedevent")
)

# Foreign keys with a tenant do not look at rows without one: this guards those, and only those.
OF_PLATFORM = """
CREATE FUNCTION portal_delivery_of_platform() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM FROM tenants_webhook WHERE id = NEW.webhook_id AND tenant_id IS NULL FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'a delivery of the platform is for a webhook of the platform'
      USING ERRCODE = '23503';
  END IF;
  IF NEW.event_id IS NOT NULL THEN
    PERFORM FROM tenants_publishedevent
    WHERE id = NEW.event_id AND tenant_id IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a delivery of the platform is of an event of the platform'
        USING ERRCODE = '23503';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER of_platform BEFORE INSERT OR UPDATE OF tenant_id, webhook_id, event_id
  ON tenants_webhookdelivery FOR EACH ROW WHEN (NEW.tenant_id IS NULL)
  EXECUTE FUNCTION portal_delivery_of_platform();
""" + callable_by("portal_delivery_of_platform()", roles="")

# A web process writes test messages, and deletes a channel with its log.
CHAT = (
    protect("tenants_chatchannel", grants="SELECT, INSERT, DELETE")
    + tenant_key("tenants_chatchannel", "project_id", "tenants_project")
    + protect("tenants_chatmessage", grants="SELECT, INSERT, DELETE")
    + tenant_key("tenants_chatmessage", "channel_id", "tenants_chatchannel")
)

# CASE, because pages without a tenant, such as the sign-in, read the announcements of all:
# portal_tenant() would raise there.
ANNOUNCEMENTS = """
ALTER TABLE tenants_announcement ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants_announcement FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON tenants_announcement
  USING (CASE
    WHEN tenants = '{}' THEN true
    WHEN coalesce(current_setting('portal.tenant', true), '') = '' THEN false
    ELSE (SELECT portal_tenant()) = ANY (tenants) END)
  WITH CHECK (tenants = ARRAY[(SELECT portal_tenant())]);
GRANT SELECT ON tenants_announcement TO portal_web;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_announcement TO portal_system, portal_ops;
""" + open_table("tenants_announcementdismissal", web="SELECT, INSERT")

SQL = MAILS + WEBHOOKS + OF_PLATFORM + CHAT + ANNOUNCEMENTS
