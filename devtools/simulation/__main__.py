"""`python -m devtools.simulation` simulates the site, or an invented one (see `command.py`)."""

import os
import sys

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    django.setup()
    from devtools.simulation.command import Command

    Command().run_from_argv(["python -m", "devtools.simulation", *sys.argv[1:]])
