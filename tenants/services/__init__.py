"""The only writers of people, projects, shares, tiers and tokens. Each is audited."""

from tenants.services.account import own_password_set, own_session_end, own_sessions_end
from tenants.services.invitations import (
    admin_invite,
    invitation_accept,
    invitation_create,
    invitation_decline,
    invitation_revoke,
)
from tenants.services.people import (
    membership_remove,
    membership_role_set,
    project_create,
    project_open_set,
    user_mails_set,
    user_zone_set,
)
from tenants.services.platform import (
    NewAccount,
    NewAdmin,
    TierTerms,
    account_create,
    operator_create,
    tenant_begin,
    tenant_create,
    tenant_open_set,
    tier_set,
)
from tenants.services.quotas import (
    Share,
    ShareMore,
    quota_more_set,
    quota_set,
    tenant_quota_more_set,
    tenant_quota_set,
)
from tenants.services.tokens import (
    TokenHolder,
    token_create,
    token_revoke,
    token_verify,
    tokens_revoke,
)
from tenants.services.words import (
    gpus_text,
    seconds_read,
    seconds_text,
    units_read,
    whole_read,
)

__all__ = [
    "NewAccount",
    "NewAdmin",
    "Share",
    "ShareMore",
    "TierTerms",
    "TokenHolder",
    "account_create",
    "admin_invite",
    "gpus_text",
    "invitation_accept",
    "invitation_create",
    "invitation_decline",
    "invitation_revoke",
    "membership_remove",
    "membership_role_set",
    "operator_create",
    "own_password_set",
    "own_session_end",
    "own_sessions_end",
    "project_create",
    "project_open_set",
    "quota_more_set",
    "quota_set",
    "seconds_read",
    "seconds_text",
    "tenant_begin",
    "tenant_create",
    "tenant_open_set",
    "tenant_quota_more_set",
    "tenant_quota_set",
    "tier_set",
    "token_create",
    "token_revoke",
    "token_verify",
    "tokens_revoke",
    "units_read",
    "user_mails_set",
    "user_zone_set",
    "whole_read",
]
