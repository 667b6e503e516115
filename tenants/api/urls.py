"""Routes of people and rules under /api/v1."""

from django.urls import path

from tenants.api.labs.labs import LabLeadOne, LabLeads, LabOne, Labs
from tenants.api.labs.limits import PersonQuotas, QuotaWindowOne, QuotaWindows
from tenants.api.log import Log
from tenants.api.members.device_sign_in import DeviceSignIns, DeviceTokens
from tenants.api.members.invitations import (
    InvitationOne,
    Invitations,
    MyInvitationAccept,
    MyInvitationDecline,
    MyInvitations,
)
from tenants.api.members.me import Me, SessionOne, Sessions, TokenOne, TokenRotate, Tokens
from tenants.api.members.operator_access import OperatorAccessEnd, OperatorAccesses
from tenants.api.members.people import People, PersonOne
from tenants.api.members.service_accounts import (
    ServiceAccountOne,
    ServiceAccounts,
    ServiceTokenOne,
    ServiceTokenRotate,
    ServiceTokens,
)
from tenants.api.outgoing.announcements import (
    AnnouncementDismiss,
    Announcements,
    AnnouncementWithdraw,
)
from tenants.api.outgoing.events import Events
from tenants.api.outgoing.failed_messages import (
    FailedMessageDismiss,
    FailedMessageRetry,
    FailedMessages,
)
from tenants.api.outgoing.notifications import (
    MyNotificationSettings,
    NotificationCount,
    NotificationOne,
    Notifications,
    NotificationsReadAll,
)
from tenants.api.outgoing.operator_notifications import (
    OperatorNotificationCount,
    OperatorNotificationOne,
    OperatorNotifications,
    OperatorNotificationsReadAll,
)
from tenants.api.projects import MemberOne, ProjectMembers, ProjectOne, Projects
from tenants.api.rules import Quotas
from tenants.api.tenants import Tenants

urlpatterns = [
    path("device/codes", DeviceSignIns.as_view(), name="api-device-codes"),
    path("device/token", DeviceTokens.as_view(), name="api-device-token"),
    path("me", Me.as_view(), name="api-me"),
    path("tokens", Tokens.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", TokenOne.as_view(), name="api-token"),
    path("tokens/<uuid:token_id>/rotate", TokenRotate.as_view(), name="api-token-rotate"),
    path("sessions", Sessions.as_view(), name="api-sessions"),
    path("sessions/<uuid:session_id>", SessionOne.as_view(), name="api-session"),
    path("projects", Projects.as_view(), name="api-projects"),
    path("projects/<slug:slug>", ProjectOne.as_view(), name="api-project"),
    path("projects/<slug:slug>/members", ProjectMembers.as_view(), name="api-project-members"),
    path("invitations", Invitations.as_view(), name="api-invitations"),
    path("invitations/<uuid:invitation_id>", InvitationOne.as_view(), name="api-invitation"),
    path("me/invitations", MyInvitations.as_view(), name="api-my-invitations"),
    path(
        "me/invitations/<uuid:invitation_id>/accept",
        MyInvitationAccept.as_view(),
        name="api-my-invitation-accept",
    ),
    path(
        "me/invitations/<uuid:invitation_id>/decline",
        MyInvitationDecline.as_view(),
        name="api-my-invitation-decline",
    ),
    path("notifications", Notifications.as_view(), name="api-notifications"),
    path("notifications/count", NotificationCount.as_view(), name="api-notification-count"),
    path("operator-notifications", OperatorNotifications.as_view(), name="api-ops-notifications"),
    path(
        "operator-notifications/count",
        OperatorNotificationCount.as_view(),
        name="api-ops-notification-count",
    ),
    path(
        "operator-notifications/read",
        OperatorNotificationsReadAll.as_view(),
        name="api-ops-notifications-read",
    ),
    path(
        "operator-notifications/<uuid:notification_id>",
        OperatorNotificationOne.as_view(),
        name="api-ops-notification",
    ),
    path("notifications/read", NotificationsReadAll.as_view(), name="api-notifications-read"),
    path(
        "notifications/settings",
        MyNotificationSettings.as_view(),
        name="api-notification-settings",
    ),
    path(
        "notifications/<uuid:notification_id>",
        NotificationOne.as_view(),
        name="api-notification",
    ),
    path("members/<uuid:member_id>", MemberOne.as_view(), name="api-member"),
    path("people", People.as_view(), name="api-people"),
    path("people/<str:username>", PersonOne.as_view(), name="api-person"),
    path("tenants", Tenants.as_view(), name="api-tenants"),
    path("audit", Log.as_view(), name="api-audit"),
    path("events", Events.as_view(), name="api-events"),
    path("announcements", Announcements.as_view(), name="api-announcements"),
    path(
        "announcements/<uuid:announcement_id>/withdraw",
        AnnouncementWithdraw.as_view(),
        name="api-announcement-withdraw",
    ),
    path(
        "announcements/<uuid:announcement_id>/dismiss",
        AnnouncementDismiss.as_view(),
        name="api-announcement-dismiss",
    ),
    path("failed-messages", FailedMessages.as_view(), name="api-failed-messages"),
    path(
        "failed-messages/<int:failed_id>/retry",
        FailedMessageRetry.as_view(),
        name="api-failed-message-retry",
    ),
    path(
        "failed-messages/<int:failed_id>/dismiss",
        FailedMessageDismiss.as_view(),
        name="api-failed-message-dismiss",
    ),
    path("operator-access", OperatorAccesses.as_view(), name="api-operator-access"),
    path(
        "operator-access/<uuid:access_id>/end",
        OperatorAccessEnd.as_view(),
        name="api-operator-access-end",
    ),
    path("service-accounts", ServiceAccounts.as_view(), name="api-service-accounts"),
    path(
        "service-accounts/<uuid:account_id>",
        ServiceAccountOne.as_view(),
        name="api-service-account",
    ),
    path(
        "service-accounts/<uuid:account_id>/tokens",
        ServiceTokens.as_view(),
        name="api-service-tokens",
    ),
    path(
        "service-accounts/<uuid:account_id>/tokens/<uuid:token_id>",
        ServiceTokenOne.as_view(),
        name="api-service-token",
    ),
    path(
        "service-accounts/<uuid:account_id>/tokens/<uuid:token_id>/rotate",
        ServiceTokenRotate.as_view(),
        name="api-service-token-rotate",
    ),
    path("labs", Labs.as_view(), name="api-labs"),
    path("labs/<slug:lab>", LabOne.as_view(), name="api-lab"),
    path("labs/<slug:lab>/leads", LabLeads.as_view(), name="api-lab-leads"),
    path("labs/<slug:lab>/leads/<str:username>", LabLeadOne.as_view(), name="api-lab-lead"),
    path("person-quotas", PersonQuotas.as_view(), name="api-person-quotas"),
    path("quota-windows", QuotaWindows.as_view(), name="api-quota-windows"),
    path("quota-windows/<uuid:window_id>", QuotaWindowOne.as_view(), name="api-quota-window"),
    path("quotas", Quotas.as_view(), name="api-quotas"),
]
