"""People and organisations, their limits, the audit log, and outgoing messages."""

from tenants.models.departures import Departure
from tenants.models.directory import DirectoryGroup, DirectoryPerson, DirectoryToken
from tenants.models.labs import (
    DatedGuarantee,
    LabLead,
    LabQuota,
    PersonQuota,
    QuotaWindow,
    TierGuarantee,
)
from tenants.models.log import ArchiveFile, AuditEntry, AuditSeal
from tenants.models.operator_access import OperatorAccess
from tenants.models.operator_roles import OperatorRole
from tenants.models.organisations import (
    GpuClass,
    IdempotencyKey,
    Invitation,
    KnownPerson,
    Lab,
    Membership,
    Project,
    Quota,
    Role,
    Tenant,
    Tier,
)
from tenants.models.outgoing.announcements import Announcement, AnnouncementDismissal
from tenants.models.outgoing.chat import ChatChannel, ChatMessage
from tenants.models.outgoing.failures import FailedMessage
from tenants.models.outgoing.messages import Mail, MailLink, OutboxMessage, PasswordReset
from tenants.models.outgoing.notifications import Notification, NotificationSettings
from tenants.models.outgoing.webhooks import PublishedEvent, Webhook, WebhookDelivery
from tenants.models.passkeys import Passkey, PasskeyChallenge
from tenants.models.people import Password, PasswordProof, SecondFactor, Session, User
from tenants.models.policy_hooks import PolicyHook, PolicyHookCall, PolicyHookHealth
from tenants.models.service_accounts import ServiceAccount
from tenants.models.sign_on import (
    SignOnAttempt,
    SignOnGroup,
    SignOnIdentity,
    SignOnProvider,
)
from tenants.models.tokens import ApiToken, Scope, TokenLives, TokenManager, set_by_valid_token

__all__ = [
    "Announcement",
    "AnnouncementDismissal",
    "ApiToken",
    "ArchiveFile",
    "AuditEntry",
    "AuditSeal",
    "ChatChannel",
    "ChatMessage",
    "DatedGuarantee",
    "Departure",
    "DirectoryGroup",
    "DirectoryPerson",
    "DirectoryToken",
    "FailedMessage",
    "GpuClass",
    "IdempotencyKey",
    "Invitation",
    "KnownPerson",
    "Lab",
    "LabLead",
    "LabQuota",
    "Mail",
    "MailLink",
    "Membership",
    "Notification",
    "NotificationSettings",
    "OperatorAccess",
    "OperatorRole",
    "OutboxMessage",
    "Passkey",
    "PasskeyChallenge",
    "Password",
    "PasswordProof",
    "PasswordReset",
    "PersonQuota",
    "PolicyHook",
    "PolicyHookCall",
    "PolicyHookHealth",
    "Project",
    "PublishedEvent",
    "Quota",
    "QuotaWindow",
    "Role",
    "Scope",
    "SecondFactor",
    "ServiceAccount",
    "Session",
    "SignOnAttempt",
    "SignOnGroup",
    "SignOnIdentity",
    "SignOnProvider",
    "Tenant",
    "Tier",
    "TierGuarantee",
    "TokenLives",
    "TokenManager",
    "User",
    "Webhook",
    "WebhookDelivery",
    "set_by_valid_token",
]
