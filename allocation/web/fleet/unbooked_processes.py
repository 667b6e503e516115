"""The operator's form for the enforcement against unbooked processes on a node."""

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST

from allocation.models import Node
from allocation.services.nodes.unbooked_use import (
    escalation_follow_policy,
    escalation_set,
)
from allocation.words.fleet import escalation_words
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.platform.errors import invalid, missing
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

MOST_MINUTES = 7 * 24 * 60


class EscalationForm(forms.Form):
    """Minutes since a process was first seen; empty means never."""

    warn = forms.IntegerField(min_value=0, max_value=MOST_MINUTES, required=False)
    end = forms.IntegerField(min_value=1, max_value=MOST_MINUTES, required=False)
    by_policy = forms.BooleanField(required=False)


@require_POST
@operator_page(Area.NODES)
def ops_unbooked_processes(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Sets when unbooked processes on a node are warned and ended."""
    form = EscalationForm(request.POST)
    if not form.is_valid():
        raise invalid("bad_minutes", refusal_text("unbooked_minutes"), "warn")
    node = Node.objects.filter(name=name).first()
    if node is None:
        raise missing("node")
    if form.cleaned_data["by_policy"]:
        escalation_follow_policy(operator=operator, node=node, now=timezone.now())
        messages.success(request, f"{name} follows the policy.")
        return redirect("ops-node", name=name)
    warn, end = form.cleaned_data["warn"], form.cleaned_data["end"]
    after = {
        "warn_after": None if warn is None else warn * 60,
        "end_after": None if end is None else end * 60,
    }
    escalation_set(operator=operator, node=node, now=timezone.now(), **after)
    messages.success(request, escalation_words(**after))
    return redirect("ops-node", name=name)


urlpatterns = [path("ops/fleet/<slug:name>/unbooked", ops_unbooked_processes, name="ops-unbooked")]
