"""Checks of an installation by `manage.py check --deploy`, in addition to Django's own.

Each finding has an id, a sentence that says what is wrong, and a hint that says what to do. The
checks connect to the stores, so they run only with `--deploy`, never when a program starts.
"""

from django.core.checks import register

from portal.checks.clocks import clocks_check
from portal.checks.database import database_check
from portal.checks.public import public_check
from portal.checks.valkey import valkey_check

TAG = "installation"
CHECKS = (public_check, database_check, valkey_check, clocks_check)


def checks_register() -> None:
    """Registers the checks with Django."""
    for each in CHECKS:
        register(each, TAG, deploy=True)
