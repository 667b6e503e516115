"""The OpenAPI document, and its viewer without inline scripts, which our content policy forbids."""

import hashlib
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.templatetags.static import static
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.encoding import force_bytes
from django.utils.html import format_html
from django.utils.http import quote_etag
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>GPU portal: REST API</title>
<link rel="stylesheet" href="{style}">
<link rel="icon" href="{icon}">
<div id="viewer"></div>
<script src="{bundle}"></script>
<script src="/api/v1/docs/start.js"></script>
</html>
"""
START = """SwaggerUIBundle({
  url: "/api/v1/schema/",
  dom_id: "#viewer",
  deepLinking: true,
  docExpansion: "list",
  validatorUrl: null,
});
"""


class Document(SpectacularAPIView):
    """The OpenAPI document as YAML or JSON. Public: it contains nothing of any tenant.

    It depends on the code alone and takes up to two seconds to compute, so each process caches it.
    """

    authentication_classes = ()
    permission_classes = ()

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponseBase:
        """The document, or 304 if the client has it."""
        renderer = request.accepted_renderer
        body, etag = _document(renderer.media_type)
        whole = HttpResponse(body, content_type=renderer.media_type)
        response = get_conditional_response(request, etag=etag, response=whole) or whole
        response["ETag"] = etag
        response["Cache-Control"] = "no-cache"
        patch_vary_headers(response, ("Accept",))
        return response


@cache
def _document(media_type: str) -> tuple[bytes, str]:
    """Returns the document in one format, and its hash."""
    generator: Any = Document.generator_class()  # its methods have no types
    schema = generator.get_schema(request=None, public=True)
    renderer = next(one for one in Document.renderer_classes if one.media_type == media_type)
    body = force_bytes(renderer().render(schema, renderer_context={}))
    return body, quote_etag(hashlib.sha256(body).hexdigest()[:32])


@require_safe
def docs_page(request: HttpRequest) -> HttpResponse:
    """The page of the viewer, served from our own files."""
    folder = "drf_spectacular_sidecar/swagger-ui-dist"
    return HttpResponse(
        format_html(
            PAGE,
            style=static(f"{folder}/swagger-ui.css"),
            icon=static(f"{folder}/favicon-32x32.png"),
            bundle=static(f"{folder}/swagger-ui-bundle.js"),
        )
    )


@require_safe
def docs_start(request: HttpRequest) -> HttpResponse:
    """The script that starts the viewer."""
    return HttpResponse(START, content_type="text/javascript; charset=utf-8")
