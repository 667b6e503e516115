"""Formats of the files of statements."""

from django.db import models


class FileFormat(models.TextChoices):
    """A file of a statement, as in `FILES`."""

    PDF = "pdf", "PDF"
    CSV = "csv", "CSV"
    FOCUS = "focus.csv", "FOCUS 1.2, CSV"
    PARQUET = "focus.parquet", "FOCUS 1.2, Parquet"
