"""The only writers of people, projects, quotas, tiers and tokens. Each writes audit entries."""

from tenants.services.account import own_password_set, own_session_end, own_sessions_end
from tenants.services.input_values import (
    gpus_text,
    seconds_read,
    seconds_text,
    units_read,
    whole_read,
)
from tenants.services.invitations import (
    admin_invite,
    invitation_accept,
    invitation_create,
    invitation_decline,
    invitation_revoke,
)
from tenants.services.labs.share import Share, ShareMore
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
    tenant_create,
    tenant_create_with_admin,
    tenant_open_set,
    tier_changes,
    tier_set,
)
from tenants.services.quotas import (
    quota_more_set,
    quota_set,
    tenant_quota_more_set,
    tenant_quota_set,
)
from tenants.services.tokens import (
    TokenHolder,
    TokenLimits,
    token_create,
    token_revoke,
    token_rotate,
    token_verify,
    tokens_revoke,
)

__all__ = [
    "NewAccount",
    "NewAdmin",
    "Share",
    "ShareMore",
    "TierTerms",
    "TokenHolder",
    "TokenLimits",
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
    "tenant_create",
    "tenant_create_with_admin",
    "tenant_open_set",
    "tenant_quota_more_set",
    "tenant_quota_set",
    "tier_changes",
    "tier_set",
    "token_create",
    "token_revoke",
    "token_rotate",
    "token_verify",
    "tokens_revoke",
    "units_read",
    "user_mails_set",
    "user_zone_set",
    "whole_read",
]
