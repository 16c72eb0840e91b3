"""Writes Arrow IPC streams for rows that are told in JSON. Argument: a file of posts, each with its path, columns and rows.

A column is a name and a pyarrow type, as an expression. Values that JSON has no form for: timestamps and dates as text (any offset, up to
nine digits of a second), binary as base64, decimals and floats that are no numbers as text.
"""

import base64
import datetime
import decimal
import json
import re
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

NAMESPACE = {name: getattr(pa, name) for name in dir(pa) if not name.startswith("_")}
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?$")
UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def nanoseconds(text):
    year, month, day, hour, minute, second, fraction, zone = TIME.match(text).groups()
    at = datetime.datetime(*map(int, (year, month, day, hour, minute, second)))
    seconds = (at - datetime.datetime(1970, 1, 1)) // datetime.timedelta(seconds=1)
    if zone and zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        seconds -= sign * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60)
    return seconds * 10**9 + int((fraction or "").ljust(9, "0"))


def plain(value, kind):
    if value is None:
        return None
    if t.is_timestamp(kind) and isinstance(value, str):
        return nanoseconds(value) // 10 ** (9 - UNITS[kind.unit])
    if t.is_date(kind) and isinstance(value, str):
        return datetime.date.fromisoformat(value)
    if t.is_floating(kind):
        return float(value)
    if t.is_decimal(kind):
        return decimal.Decimal(str(value))
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return base64.b64decode(value)
    return value


def flat(values, items):
    offsets, out = [0], []
    for value in values:
        out.extend(items(value) if value is not None else [])
        offsets.append(len(out))
    return offsets, out


def build(values, kind):
    nulls = pa.array([value is None for value in values], pa.bool_())
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, build(values, kind.storage_type))
    if t.is_dictionary(kind):
        seen = list(dict.fromkeys(json.dumps(value) for value in values if value is not None))
        keys = [None if value is None else seen.index(json.dumps(value)) for value in values]
        entries = build([json.loads(value) for value in seen], kind.value_type)
        return pa.DictionaryArray.from_arrays(pa.array(keys, kind.index_type), entries, ordered=kind.ordered)
    if t.is_run_end_encoded(kind):
        return pc.run_end_encode(build(values, kind.value_type), run_end_type=kind.run_end_type)
    if t.is_struct(kind):
        fields = list(kind)
        children = [build([(value or {}).get(field.name) for value in values], field.type) for field in fields]
        return pa.StructArray.from_arrays(children, fields=fields, mask=nulls)
    if t.is_map(kind):
        offsets, entries = flat(values, lambda value: value.items())
        keys, items = build([k for k, _ in entries], kind.key_type), build([v for _, v in entries], kind.item_type)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=nulls)
    if t.is_fixed_size_list(kind):
        items = [item for value in values for item in (value or [None] * kind.list_size)]
        return pa.FixedSizeListArray.from_arrays(build(items, kind.value_type), type=kind, mask=nulls)
    if t.is_list(kind) or t.is_large_list(kind):
        offsets, items = flat(values, list)
        made, width = (pa.LargeListArray, pa.int64()) if t.is_large_list(kind) else (pa.ListArray, pa.int32())
        return made.from_arrays(pa.array(offsets, width), build(items, kind.value_type), type=kind, mask=nulls)
    if t.is_list_view(kind) or t.is_large_list_view(kind):
        offsets, items = flat(values, list)
        large = t.is_large_list_view(kind)
        made, width = (pa.LargeListViewArray, pa.int64()) if large else (pa.ListViewArray, pa.int32())
        sizes = [to - at for at, to in zip(offsets, offsets[1:])]
        arrays = pa.array(offsets[:-1], width), pa.array(sizes, width), build(items, kind.value_type)
        return made.from_arrays(*arrays, type=kind, mask=nulls)
    return pa.array([plain(value, kind) for value in values], kind)


posts = json.load(open(sys.argv[1]))
failed = {}
for post in posts:
    try:
        rows = [json.loads(row) for row in post["rows"]]
        kinds = [(name, eval(kind, {"__builtins__": {}}, NAMESPACE)) for name, kind in post["columns"]]
        arrays = [build([row.get(name) for row in rows], kind) for name, kind in kinds]
        schema = pa.schema([pa.field(name, kind) for name, kind in kinds])
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        with pa.ipc.new_stream(post["path"], schema) as stream:
            stream.write_batch(batch)
    except Exception as error:
        failed[post["path"]] = repr(error)
print(json.dumps({"failed": failed}))
