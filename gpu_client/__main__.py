"""`gpu`: books GPUs and shows bookings, from any machine with a token."""

import sys


def console() -> None:
    """Entry point of the program `gpu`."""
    try:
        from gpu_client.commands import app  # noqa: PLC0415 (typer is an optional package)
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is missing. Install the command: pip install 'gpu-portal[cli]'")
    app()


if __name__ == "__main__":
    console()
