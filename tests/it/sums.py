"""Reads one Delta table with readers that know nothing of Penstock, and prints what each finds as JSON: rows, the sum of `id`, and
for each further column its name, how many of its values are not null, and their sum where they are numbers.

Arguments: path of the table, and the columns.
"""

import glob
import json
import os
import sys

import deltalake
import duckdb
import duckdb_extension_delta
import polars
import pyarrow as pa
import pyarrow.compute as pc

path, columns = sys.argv[1], sys.argv[2:]


def by_arrow():
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    found = {"count": rows.num_rows, "ids": pc.sum(rows["id"]).as_py()}
    for name in columns:
        values = rows[name]
        number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
        found[name] = [rows.num_rows - values.null_count, pc.sum(values).as_py() if number else None]
    return found


def by_duckdb():
    extensions = os.path.join(os.path.dirname(duckdb_extension_delta.__file__), "extensions")
    found = glob.glob(os.path.join(extensions, "v*", "delta.duckdb_extension"))
    db = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    db.execute(f"LOAD '{found[0]}'")
    scan = f"delta_scan('{path}')"
    count, ids = db.execute(f"select count(*), sum(id)::bigint from {scan}").fetchone()
    result = {"count": count, "ids": ids}
    types = dict(db.execute(f"select column_name, column_type from (describe select * from {scan})").fetchall())
    for name in columns:
        total = f"sum({name})::double" if types[name] in ("BIGINT", "DOUBLE", "INTEGER") else "null"
        result[name] = list(db.execute(f"select count({name}), {total} from {scan}").fetchone())
    return result


def by_polars():
    rows = polars.scan_delta(path).collect()
    found = {"count": rows.height, "ids": rows["id"].sum()}
    for name in columns:
        values = rows[name]
        found[name] = [rows.height - values.null_count(), values.sum() if values.dtype.is_numeric() else None]
    return found


print(json.dumps({"deltalake": by_arrow(), "duckdb": by_duckdb(), "polars": by_polars()}))
