"""`gpu`: books GPUs and shows bookings, from any machine with a token."""

import sys


def console() -> None:
    """Entry point of the program `gpu`."""
    try:
        from gpu_client.commands import app  # noqa: PLC0415 (typer is an optional package)
    except ModuleNotFoundError as error:
        # The package is in no index, so its bare name could be anybody's.
        sys.exit(
            f"{error.name} is missing. Install the command from a checkout of the portal, "
            "pip install '.[cli]', or from its wheel, pip install './gpu_portal-….whl[cli]'"
        )
    app()


if __name__ == "__main__":
    console()
