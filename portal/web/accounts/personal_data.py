"""The download of a person's own data, of all their tenants."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.queries.bookings.personal_data import account_data, tenant_data
from tenants.access import tenants_of
from tenants.models import Tenant, User
from tenants.platform.costly import costly
from tenants.platform.wall import tenant_tx
from tenants.web.frame import person_page


@costly("export")
@require_safe
@person_page
def personal_data(request: HttpRequest, user: User) -> HttpResponse:
    """Returns the person's data as a JSON file."""
    now, tenants = timezone.now(), []
    for choice in tenants_of(user, now):
        with tenant_tx(choice.tenant_id):
            tenants.append(tenant_data(user, Tenant.objects.get(id=choice.tenant_id)))
    found = {"created": now.isoformat(), "account": account_data(user, now), "tenants": tenants}
    response = JsonResponse(found, json_dumps_params={"indent": 2, "ensure_ascii": False})
    response["Content-Disposition"] = 'attachment; filename="personal-data.json"'
    return response
