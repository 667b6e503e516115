"""The wiring of the portal and what spans its apps."""

# Without this import a web process would enqueue to Celery's default broker instead of ours.
from portal.celery import app as celery_app

__all__ = ["celery_app"]
