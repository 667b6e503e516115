"""The portal's settings for mypy: values of the environment that no process ever uses."""

import os

os.environ.setdefault("SECRET_KEY", "types-" * 8)
os.environ.setdefault("AGENTS_MASTER_KEY", "types-" * 8)
os.environ.setdefault("DATABASE_URL", "postgresql:///types")
os.environ.setdefault("REDIS_URL", "redis://localhost:1")
os.environ.setdefault("AGENTS_REDIS_URL", "redis://localhost:2")

from portal.settings import *  # noqa: F403
