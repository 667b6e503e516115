"""Settings, entry points and everything that spans the apps."""

# Without this import a web process would send tasks to Celery's default broker.
from portal.celery import app as celery_app

__all__ = ["celery_app"]
