"""Reads Delta tables with `deltalake`, which knows nothing of Penstock, and prints what is in them as JSON.

Arguments: paths of tables. Rows are found by their column `n`. Values that JSON has no form for are told as text: timestamps in UTC,
dates, decimals, binary as base64, and floats, so that whoever reads this reads them to the last bit.
"""

import base64
import datetime
import json
import math
import sys

import deltalake
import pyarrow as pa
import pyarrow.types as t

EPOCH = datetime.datetime(1970, 1, 1)


def time(micros):
    at = EPOCH + datetime.timedelta(microseconds=micros)
    fraction = f".{at.microsecond:06}".rstrip("0").rstrip(".")
    return f"{at.year:04}-{at.month:02}-{at.day:02}T{at.hour:02}:{at.minute:02}:{at.second:02}{fraction}Z"


def shown(scalar):
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if t.is_timestamp(kind):
        assert kind == pa.timestamp("us", tz="UTC"), kind
        return time(scalar.value)
    if t.is_struct(kind):
        return {field.name: shown(scalar[field.name]) for field in kind}
    if t.is_map(kind):
        keys, items = scalar.values.field(0), scalar.values.field(1)
        return {key.as_py(): shown(item) for key, item in zip(keys, items)}
    if t.is_list(kind) or t.is_large_list(kind):
        return [shown(item) for item in scalar.values]
    value = scalar.as_py()
    if t.is_floating(kind) and (math.isnan(value) or math.isinf(value)):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if t.is_floating(kind):
        return f"float:{value!r}"
    if t.is_decimal(kind):
        return format(value, "f")
    if t.is_date(kind):
        return f"{value.year:04}-{value.month:02}-{value.day:02}"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def read(path):
    try:
        rows = deltalake.DeltaTable(path).to_pyarrow_table()
    except Exception as error:
        return repr(error)
    columns = {name: [shown(value) for value in rows[name]] for name in rows.column_names}
    found = [{name: values[at] for name, values in columns.items()} for at in range(rows.num_rows)]
    return sorted(found, key=lambda row: row["n"])


print(json.dumps([read(path) for path in json.load(open(sys.argv[1]))]))
