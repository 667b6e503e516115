"""Routes for bookings and hardware under /api/v1."""

from django.urls import path, register_converter

from allocation.api.approvals.answers import (
    ApprovalAlternative,
    ApprovalCounter,
    CounterAccept,
    CounterDecline,
)
from allocation.api.approvals.approvals import (
    ApprovalApprove,
    ApprovalDecline,
    ApprovalOne,
    Approvals,
)
from allocation.api.bookings.acts import (
    BookingAcknowledge,
    BookingCancel,
    BookingCheckIn,
    BookingExtend,
    BookingMoreTime,
    BookingRelease,
    BookingResult,
    BookingStillNeeded,
    BookingUndo,
)
from allocation.api.bookings.batches import BookingBatch
from allocation.api.bookings.bookings import BookingEvents, BookingOne, Bookings, BookingWhy
from allocation.api.bookings.corrections import Corrections
from allocation.api.bookings.earlier import BookingChange, BookingEarlierOptions
from allocation.api.bookings.personal_data import PersonalData
from allocation.api.bookings.quotes import Quotes
from allocation.api.bookings.room.availability import Availability
from allocation.api.bookings.room.use import BookingUse, GpuUseOne
from allocation.api.bookings.series import SeriesCancel, SeriesList, SeriesOne
from allocation.api.bookings.tier_versions import TierVersions, TierVersionWithdraw
from allocation.api.decisions import platform as platform_decisions
from allocation.api.decisions.decisions import DecisionOne, DecisionReplays, Decisions
from allocation.api.fleet.bookings import SiteBookings
from allocation.api.fleet.bulk import BulkActs, BulkPreview
from allocation.api.fleet.catalogue import (
    GpuClassOne,
    GpuModelOne,
    GpuModels,
    KnownModels,
    ReportedModels,
)
from allocation.api.fleet.compaction import CompactionOrders, CompactionProposals
from allocation.api.fleet.enrolment import AgentEnrol, EngineEnrol, EngineHosts, Enrolments
from allocation.api.fleet.gpus import GpuClasses, GpuOne, GpuReturn, Gpus
from allocation.api.fleet.maintenance import (
    MaintenanceChangePreview,
    MaintenanceEnd,
    MaintenanceList,
    MaintenanceOne,
    MaintenancePreview,
)
from allocation.api.fleet.nodes import (
    Engines,
    NodeDrain,
    NodeEvents,
    NodeFence,
    NodeKeyRotate,
    NodeOne,
    NodeReady,
    NodeRevoke,
    Nodes,
)
from allocation.api.fleet.policy import (
    Policy,
    PolicyPreview,
    PolicyVersionOne,
    PolicyVersions,
)
from allocation.api.fleet.portal_modes import (
    PortalFreeze,
    PortalFreezeEnd,
    PortalOutage,
    PortalOutageClose,
    PortalOutageEnd,
)
from allocation.api.fleet.stops import StopEnd, StopPreview, Stops
from allocation.api.fleet.tenants import TenantUse
from allocation.api.fleet.tiers import TierOne, Tiers
from allocation.api.money.bookings import FocusExport, StatementCsv, StatementPdf, Statements
from allocation.api.money.forecasts import Forecasts
from allocation.api.money.held_use import HeldUseView
from allocation.api.money.ladder_effects import LadderPreview, PlatformLadderPreview
from allocation.api.money.price_drafts import (
    PriceDraftDiscard,
    PriceDraftEffect,
    PriceDraftOne,
    PriceDraftPublish,
    PriceDraftRebase,
    PriceDrafts,
)
from allocation.api.money.spend import Spend
from allocation.api.money.variances import (
    PlatformVarianceRule,
    PlatformVariances,
    VarianceRule,
    Variances,
)


class ReferenceConverter:
    """Matches a booking's id, `bk_<hex>`, or its number, `BK-2041` or `BK-2041[17]`."""

    regex = r"bk_[0-9a-f]{32}|[Bb][Kk]-[1-9][0-9]{0,17}(?:\[[1-9][0-9]{0,8}\])?"

    def to_python(self, value: str) -> str:
        """The reference, unchanged."""
        return value

    def to_url(self, value: str) -> str:
        """The reference, unchanged."""
        return value


class SeriesConverter(ReferenceConverter):
    """Matches a series' id, `sr_<hex>`."""

    regex = r"sr_[0-9a-f]{32}"


register_converter(ReferenceConverter, "booking")
register_converter(SeriesConverter, "series")

urlpatterns = [
    # First, because they are called most, and a path is compared with one route after the other.
    path("bookings", Bookings.as_view(), name="api-bookings"),
    path("bookings/batch", BookingBatch.as_view(), name="api-booking-batch"),
    path("bookings/<booking:reference>", BookingOne.as_view(), name="api-booking"),
    path("bookings/<booking:reference>/cancel", BookingCancel.as_view(), name="api-booking-cancel"),
    path(
        "bookings/<booking:reference>/release",
        BookingRelease.as_view(),
        name="api-booking-release",
    ),
    path("bookings/<booking:reference>/undo", BookingUndo.as_view(), name="api-booking-undo"),
    path("bookings/<booking:reference>/extend", BookingExtend.as_view(), name="api-booking-extend"),
    path(
        "bookings/<booking:reference>/acknowledge",
        BookingAcknowledge.as_view(),
        name="api-booking-acknowledge",
    ),
    path(
        "bookings/<booking:reference>/more-time",
        BookingMoreTime.as_view(),
        name="api-booking-more-time",
    ),
    path(
        "bookings/<booking:reference>/check-in",
        BookingCheckIn.as_view(),
        name="api-booking-check-in",
    ),
    path(
        "bookings/<booking:reference>/still-needed",
        BookingStillNeeded.as_view(),
        name="api-booking-still-needed",
    ),
    path("bookings/<booking:reference>/result", BookingResult.as_view(), name="api-booking-result"),
    path("bookings/<booking:reference>/events", BookingEvents.as_view(), name="api-booking-events"),
    path(
        "bookings/<booking:reference>/earlier-options",
        BookingEarlierOptions.as_view(),
        name="api-booking-earlier-options",
    ),
    path("bookings/<booking:reference>/change", BookingChange.as_view(), name="api-booking-change"),
    path("bookings/<booking:reference>/use", BookingUse.as_view(), name="api-booking-use"),
    path("bookings/<booking:reference>/why", BookingWhy.as_view(), name="api-booking-why"),
    path("forecasts", Forecasts.as_view(), name="api-forecasts"),
    path("platform-variances", PlatformVariances.as_view(), name="api-platform-variances"),
    path(
        "platform-budgets/<uuid:budget_id>/variance-rule",
        PlatformVarianceRule.as_view(),
        name="api-platform-variance-rule",
    ),
    path(
        "budgets/<uuid:budget_id>/guardrails/preview",
        LadderPreview.as_view(),
        name="api-ladder-preview",
    ),
    path(
        "platform-budgets/<uuid:budget_id>/guardrails/preview",
        PlatformLadderPreview.as_view(),
        name="api-platform-ladder-preview",
    ),
    path("variances", Variances.as_view(), name="api-variances"),
    path(
        "budgets/<uuid:budget_id>/variance-rule",
        VarianceRule.as_view(),
        name="api-variance-rule",
    ),
    path("spend", Spend.as_view(), name="api-spend"),
    path("statements", Statements.as_view(), name="api-statements"),
    path("held-use", HeldUseView.as_view(), name="api-held-use"),
    path("statements.csv", StatementCsv.as_view(), name="api-statement-csv"),
    path("statements.pdf", StatementPdf.as_view(), name="api-statement-pdf"),
    path("exports/focus", FocusExport.as_view(), name="api-focus"),
    path("gpu-classes", GpuClasses.as_view(), name="api-gpu-classes"),
    path("gpu-classes/<slug:slug>", GpuClassOne.as_view(), name="api-gpu-class"),
    path("gpu-models", GpuModels.as_view(), name="api-gpu-models"),
    path("gpu-models/known", KnownModels.as_view(), name="api-known-models"),
    path("gpu-models/reported", ReportedModels.as_view(), name="api-reported-models"),
    path("gpu-models/<slug:slug>", GpuModelOne.as_view(), name="api-gpu-model"),
    path("availability", Availability.as_view(), name="api-availability"),
    path("quotes", Quotes.as_view(), name="api-quotes"),
    path("corrections", Corrections.as_view(), name="api-corrections"),
    path("approvals", Approvals.as_view(), name="api-approvals"),
    path("approvals/<uuid:approval_id>", ApprovalOne.as_view(), name="api-approval"),
    path(
        "approvals/<uuid:approval_id>/approve",
        ApprovalApprove.as_view(),
        name="api-approval-approve",
    ),
    path(
        "approvals/<uuid:approval_id>/decline",
        ApprovalDecline.as_view(),
        name="api-approval-decline",
    ),
    path(
        "approvals/<uuid:approval_id>/counter",
        ApprovalCounter.as_view(),
        name="api-approval-counter",
    ),
    path(
        "approvals/<uuid:approval_id>/counter/accept",
        CounterAccept.as_view(),
        name="api-counter-accept",
    ),
    path(
        "approvals/<uuid:approval_id>/counter/decline",
        CounterDecline.as_view(),
        name="api-counter-decline",
    ),
    path(
        "approvals/<uuid:approval_id>/alternative",
        ApprovalAlternative.as_view(),
        name="api-approval-alternative",
    ),
    path("tier-versions", TierVersions.as_view(), name="api-tier-versions"),
    path(
        "tier-versions/<uuid:version_id>/withdraw",
        TierVersionWithdraw.as_view(),
        name="api-tier-version-withdraw",
    ),
    path("series", SeriesList.as_view(), name="api-series-list"),
    path("series/<series:series>", SeriesOne.as_view(), name="api-series"),
    path("series/<series:series>/cancel", SeriesCancel.as_view(), name="api-series-cancel"),
    path("engines", Engines.as_view(), name="api-engines"),
    path("fleet/nodes", Nodes.as_view(), name="api-nodes"),
    path("fleet/nodes/<slug:name>", NodeOne.as_view(), name="api-node"),
    path("fleet/nodes/<slug:name>/drain", NodeDrain.as_view(), name="api-node-drain"),
    path("fleet/nodes/<slug:name>/ready", NodeReady.as_view(), name="api-node-ready"),
    path("fleet/nodes/<slug:name>/revoke", NodeRevoke.as_view(), name="api-node-revoke"),
    path("fleet/nodes/<slug:name>/rotate-key", NodeKeyRotate.as_view(), name="api-node-key-rotate"),
    path("fleet/nodes/<slug:name>/fence", NodeFence.as_view(), name="api-node-fence"),
    path("fleet/nodes/<slug:name>/events", NodeEvents.as_view(), name="api-node-events"),
    path("fleet/tenants", TenantUse.as_view(), name="api-tenant-use"),
    path("fleet/bookings", SiteBookings.as_view(), name="api-site-bookings"),
    path("fleet/bookings/acts", BulkActs.as_view(), name="api-bulk-acts"),
    path("fleet/bookings/acts/preview", BulkPreview.as_view(), name="api-bulk-preview"),
    path("fleet/gpus", Gpus.as_view(), name="api-gpus"),
    path("fleet/gpus/<uuid:gpu_id>", GpuOne.as_view(), name="api-gpu"),
    path("fleet/gpus/<uuid:gpu_id>/use", GpuUseOne.as_view(), name="api-gpu-use"),
    path("fleet/gpus/<uuid:gpu_id>/return", GpuReturn.as_view(), name="api-gpu-return"),
    path("price-books/drafts", PriceDrafts.as_view(), name="api-price-drafts"),
    path("price-books/drafts/<uuid:draft_id>", PriceDraftOne.as_view(), name="api-price-draft"),
    path(
        "price-books/drafts/<uuid:draft_id>/effect",
        PriceDraftEffect.as_view(),
        name="api-price-draft-effect",
    ),
    path(
        "price-books/drafts/<uuid:draft_id>/rebase",
        PriceDraftRebase.as_view(),
        name="api-price-draft-rebase",
    ),
    path(
        "price-books/drafts/<uuid:draft_id>/discard",
        PriceDraftDiscard.as_view(),
        name="api-price-draft-discard",
    ),
    path(
        "price-books/drafts/<uuid:draft_id>/publish",
        PriceDraftPublish.as_view(),
        name="api-price-draft-publish",
    ),
    path("maintenance", MaintenanceList.as_view(), name="api-maintenance-list"),
    path("maintenance/preview", MaintenancePreview.as_view(), name="api-maintenance-preview"),
    path(
        "maintenance/<uuid:maintenance_id>",
        MaintenanceOne.as_view(),
        name="api-maintenance-one",
    ),
    path(
        "maintenance/<uuid:maintenance_id>/preview",
        MaintenanceChangePreview.as_view(),
        name="api-maintenance-one-preview",
    ),
    path(
        "maintenance/<uuid:maintenance_id>/end",
        MaintenanceEnd.as_view(),
        name="api-maintenance-end",
    ),
    path("compaction/proposals", CompactionProposals.as_view(), name="api-compaction-proposals"),
    path("compaction/orders", CompactionOrders.as_view(), name="api-compaction-orders"),
    path("policy", Policy.as_view(), name="api-policy"),
    path("policy/versions", PolicyVersions.as_view(), name="api-policy-versions"),
    path("policy/versions/<int:number>", PolicyVersionOne.as_view(), name="api-policy-version"),
    path("policy/versions/<int:number>/preview", PolicyPreview.as_view(), name="api-policy-preview"),
    path("portal/outage", PortalOutage.as_view(), name="api-portal-outage"),
    path("portal/outage/close", PortalOutageClose.as_view(), name="api-portal-outage-close"),
    path("portal/outage/end", PortalOutageEnd.as_view(), name="api-portal-outage-end"),
    path("portal/freeze", PortalFreeze.as_view(), name="api-portal-freeze"),
    path("portal/freeze/end", PortalFreezeEnd.as_view(), name="api-portal-freeze-end"),
    path("me/data", PersonalData.as_view(), name="api-personal-data"),
    *platform_decisions.urlpatterns,
    path("decisions", Decisions.as_view(), name="api-decisions"),
    path("decisions/<int:number>", DecisionOne.as_view(), name="api-decision"),
    path("decisions/<int:number>/replay", DecisionReplays.as_view(), name="api-decision-replay"),
    path("stops", Stops.as_view(), name="api-stops"),
    path("stops/preview", StopPreview.as_view(), name="api-stop-preview"),
    path("stops/<uuid:stop_id>/end", StopEnd.as_view(), name="api-stop-end"),
    path("fleet/enrolments", Enrolments.as_view(), name="api-enrolments"),
    path("agents/enrol", AgentEnrol.as_view(), name="api-agent-enrol"),
    path("agents/engines", EngineEnrol.as_view(), name="api-engine-enrol"),
    path("agents/engines/hosts", EngineHosts.as_view(), name="api-engine-hosts"),
    path("tiers", Tiers.as_view(), name="api-tiers"),
    path("tiers/<slug:slug>", TierOne.as_view(), name="api-tier"),
]
