"""The page of messages on which a program failed, for operators: try again, or give up."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from tenants.models import User
from tenants.rules.operator_roles import Area
from tenants.services.failed_messages import (
    failed_message_dismiss,
    failed_message_retry,
    failed_messages,
)
from tenants.web.frame import operator_page


@require_safe
@operator_page(Area.SYSTEM)
def ops_failed_messages(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows what failed, the newest first."""
    context = {"failed": failed_messages()}
    return render(request, "allocation/ops_failed_messages.html", context)


@require_POST
@operator_page(Area.SYSTEM)
def ops_failed_message_retry(request: HttpRequest, operator: User, failed_id: int) -> HttpResponse:
    """Makes the next run of its program try a message again."""
    failed_message_retry(operator=operator, failed_id=failed_id, now=timezone.now())
    messages.success(request, "The message is tried again within half a minute.")
    return redirect("ops-failed-messages")


@require_POST
@operator_page(Area.SYSTEM)
def ops_failed_message_dismiss(request: HttpRequest, operator: User, failed_id: int) -> HttpResponse:
    """Gives a message up."""
    failed_message_dismiss(operator=operator, failed_id=failed_id, now=timezone.now())
    messages.success(request, "The message is not tried again.")
    return redirect("ops-failed-messages")


urlpatterns = [
    path("ops/failed-messages", ops_failed_messages, name="ops-failed-messages"),
    path(
        "ops/failed-messages/<int:failed_id>/retry",
        ops_failed_message_retry,
        name="ops-failed-message-retry",
    ),
    path(
        "ops/failed-messages/<int:failed_id>/dismiss",
        ops_failed_message_dismiss,
        name="ops-failed-message-dismiss",
    ),
]
