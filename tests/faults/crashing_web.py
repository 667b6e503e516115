"""A web process that is killed at a chosen point of the first booking that it takes.

`python -m tests.faults.crashing_web POINT PORT`
"""

import importlib
import sys

import django
import uvicorn

from tests.faults.crashing_cycle import dying

# Where it dies: just before this function is called for the first time.
POINTS = {
    "before anything is written": ("allocation.services.bookings.creation", "new_holds_place"),
    "in the middle of writing": ("allocation.services.bookings.creation", "audit_write"),
    "before the commit": ("tenants.api.idempotency", "_answer"),
    "after the commit": ("tenants.outbox", "_send"),
}


def main(point: str, port: str) -> None:
    """Serves until it dies."""
    django.setup()
    name, function = POINTS[point]
    module = importlib.import_module(name)
    setattr(module, function, dying(getattr(module, function), 1))
    uvicorn.run("portal.asgi:application", port=int(port), lifespan="off", log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
