"""Pages about people, shares, tiers and tokens."""

from django.urls import path

from tenants.features import FEATURES
from tenants.web.log import log, log_csv, ops_log, ops_log_csv
from tenants.web.members.accounts import ops_accounts
from tenants.web.members.operator_access import urlpatterns as access_urls
from tenants.web.members.people import people
from tenants.web.members.service_accounts import urlpatterns as service_account_urls
from tenants.web.members.settings import organisation_tokens, settings
from tenants.web.organisation import organisation
from tenants.web.outgoing.announcements import urlpatterns as announcement_urls
from tenants.web.outgoing.notifications import urlpatterns as notification_urls
from tenants.web.outgoing.operator_inbox import urlpatterns as operator_inbox_urls
from tenants.web.tiers import ops_tiers, tiers

urlpatterns = [
    path("t/<slug:tenant>/people", people, name="people"),
    path("t/<slug:tenant>/tiers", tiers, name="tiers"),
    path("t/<slug:tenant>/settings", settings, name="settings"),
    path("t/<slug:tenant>/organisation", organisation, name="organisation"),
    path("t/<slug:tenant>/organisation/tokens", organisation_tokens, name="organisation-tokens"),
    *announcement_urls,
    *access_urls,
    *notification_urls,
    *operator_inbox_urls,
    *service_account_urls,
    *FEATURES.urls("page"),
    path("t/<slug:tenant>/log", log, name="log"),
    path("t/<slug:tenant>/log.csv", log_csv, name="log-csv"),
    path("ops/log", ops_log, name="ops-log"),
    path("ops/log.csv", ops_log_csv, name="ops-log-csv"),
    path("ops/tiers", ops_tiers, name="ops-tiers"),
    path("ops/accounts", ops_accounts, name="ops-accounts"),
]
