"""Routes of the REST API, collected from the apps, and of the probes."""

from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, include, path, re_path
from django.views.decorators.csrf import csrf_exempt

import allocation.api.urls
import allocation.features
import billing.api.urls
import tenants.api.urls
import tenants.features
from portal.api.docs import Document, docs_page, docs_start
from portal.api.errors import PROBLEM_JSON, problem
from portal.api.health import healthz, readyz, statusz
from portal.api.metrics import metrics
from portal.api.scim import urlpatterns as scim_urlpatterns
from portal.api.scim_groups import urlpatterns as scim_group_urlpatterns
from tenants.platform.errors import missing


@csrf_exempt
def no_such_address(request: HttpRequest) -> JsonResponse:
    """Answers every unknown address with problem JSON, for any method."""
    answer = problem(missing("address"))
    return JsonResponse(answer.data, status=answer.status_code, content_type=PROBLEM_JSON)


api_urlpatterns: list[URLPattern] = [
    *allocation.api.urls.urlpatterns,
    *allocation.features.FEATURES.urls("rest"),
    *tenants.api.urls.urlpatterns,
    *tenants.features.FEATURES.urls("rest"),
    *billing.api.urls.urlpatterns,
    path("schema/", Document.as_view(), name="api-schema"),
    path("docs/", docs_page, name="api-docs"),
    path("docs/start.js", docs_start),
    re_path(r"^.*$", no_such_address),
]
urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("statusz", statusz, name="statusz"),
    *scim_urlpatterns,
    *scim_group_urlpatterns,
    path("api/v1/", include(api_urlpatterns)),
]
