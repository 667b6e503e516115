"""The OpenAPI document's viewer, without inline script so that our content policy holds."""

from django.http import HttpRequest, HttpResponse
from django.templatetags.static import static
from django.utils.html import format_html
from django.views.decorators.http import require_safe

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


@require_safe
def docs_page(request: HttpRequest) -> HttpResponse:
    """The viewer, served from our own files."""
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
