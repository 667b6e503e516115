"""Installing an agent: the command with a single-use token, and whether the agent has connected."""

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from allocation.models import Node
from allocation.queries.fleet.nodes import enrolment_progress
from allocation.services.nodes.fleet import (
    TOKEN_LIFETIME,
    enrolment_token_create,
)
from tenants.models import User
from tenants.platform.errors import missing
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

SLUG = r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"


class EnrolForm(forms.Form):
    """The node and rack of a new agent."""

    node_name = forms.RegexField(SLUG, max_length=40, label="Node name")
    rack_name = forms.RegexField(SLUG, max_length=40, label="Rack")


@require_http_methods(["GET", "POST"])
@operator_page(Area.FLEET)
def ops_enrol(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the command that installs an agent, with a single-use token shown once."""
    asked = {key: request.GET.get(key, "") for key in ("node_name", "rack_name")}
    form = EnrolForm(request.POST or None, initial=asked)
    context: dict[str, Any] = {"form": form}
    status = 200
    if request.method == "POST":
        if form.is_valid():
            name, now = form.cleaned_data["node_name"], timezone.now()
            token = enrolment_token_create(**form.cleaned_data, now=now, operator=operator)
            context |= {
                "node": name,
                "command": _command(request, name, token),
                "arrival": enrolment_progress(name, now),
                "seconds": int(TOKEN_LIFETIME.total_seconds()),
            }
        else:
            status = 422
    return render(request, "allocation/ops_enrol.html", context, status=status)


@require_GET
@operator_page(Area.FLEET)
def ops_arrival(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Shows the part of the install page that says whether the agent has connected."""
    arrival = enrolment_progress(name, timezone.now())
    if arrival is None:
        raise missing("node")
    return render(request, "allocation/fleet/arrival.html", {"arrival": arrival})


def _command(request: HttpRequest, name: str, token: str) -> str:
    """Returns the shell command. The token is in the environment because arguments show in `ps`."""
    again = " --enrol-again" if Node.objects.get(name=name).was_enrolled else ""
    portal = request.build_absolute_uri("/").rstrip("/")
    return (
        "pip install gpu_portal-*.whl\n"
        f"GPU_AGENT_TOKEN={token} gpu-agent --portal {portal} --name {name}{again}"
    )


urlpatterns = [
    path("ops/install", ops_enrol, name="ops-enrol"),
    path("ops/install/<slug:name>", ops_arrival, name="ops-arrival"),
]
