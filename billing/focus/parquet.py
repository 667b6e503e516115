"""The FOCUS 1.2 export as a Parquet file with typed columns, written in bounded memory."""

from collections.abc import Iterable, Iterator
from datetime import date
from itertools import islice
from typing import IO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from billing.focus.lines import StatementLine, Uses
from billing.focus.rows import FOCUS_COLUMNS, focus_rows

# Rows of a row group: one is in memory at a time.
GROUP = 10_000
_MONEY = pa.decimal128(20, 6)
_MOMENT = pa.timestamp("us", tz="UTC")
_MEASURED = ("Cost", "UnitPrice", "Quantity")
_MOMENTS = ("PeriodStart", "PeriodEnd")


def focus_parquet(
    lines: Iterable[StatementLine],
    tenant: tuple[str, str],
    month: date,
    uses: Uses,
    file: IO[bytes],
) -> None:
    """Writes the rows of `focus_rows` into the file."""
    rows = focus_rows(lines, tenant, month, uses)
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for group in _groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema=SCHEMA))


def _groups(rows: Iterator[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    while group := list(islice(rows, GROUP)):
        # Arrow writes a map as a list of pairs.
        yield [row | {"Tags": [*cast("dict[str, str]", row["Tags"]).items()]} for row in group]


def _type(name: str) -> pa.DataType:
    if name == "Tags":
        return pa.map_(pa.string(), pa.string())
    if name.endswith(_MOMENTS):
        return _MOMENT
    return _MONEY if name.endswith(_MEASURED) or name.startswith("x_") else pa.string()


SCHEMA = pa.schema([(name, _type(name)) for name in FOCUS_COLUMNS])
