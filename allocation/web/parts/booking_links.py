"""Template filter: booking numbers in a sentence become links to their pages."""

import re
from typing import TYPE_CHECKING

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

if TYPE_CHECKING:
    from tenants.models import Tenant

register = template.Library()
LABEL = re.compile(r"\bBK-[0-9]{1,18}\b(?:\[[0-9]{1,9}\])?")


@register.filter
def linked(sentence: object, tenant: "Tenant | None") -> SafeString:
    """The escaped sentence; inside a tenant every BK number leads to its booking."""
    text = str(escape(str(sentence)))
    if not tenant:
        return mark_safe(text)  # noqa: S308 (escaped above)

    def link(found: re.Match[str]) -> str:
        return format_html('<a class="link" href="/t/{}/bookings/{}">{}</a>', tenant.slug, found[0], found[0])

    return mark_safe(LABEL.sub(link, text))  # noqa: S308 (escaped above; labels are digits)
