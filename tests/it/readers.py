"""Reads one Delta table with two readers that know nothing of Penstock, and prints what each finds as JSON.

Arguments: path of the table, a date of its partition, and the time zone to print times in.
"""

import glob
import json
import os
import sys

import deltalake
import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.compute as pc

path, date = sys.argv[1:3]


def by_arrow():
    table = deltalake.DeltaTable(path)
    rows = table.to_pyarrow_table()
    one_date = table.to_pyarrow_table(partitions=[("date", "=", date)])
    micros = pc.cast(rows["ts"], pa.int64())
    per_date = rows.group_by("date").aggregate([("id", "count")]).to_pylist()
    tags = [value for entries in rows["tags"].to_pylist() if entries for _, value in entries]
    return {
        "version": table.version(),
        "count": rows.num_rows,
        "ids": pc.sum(rows["id"]).as_py(),
        "prices": str(pc.sum(rows["price"]).as_py()),
        "items": pc.sum(pc.list_flatten(rows["items"])).as_py(),
        "inner": pc.sum(pc.struct_field(rows["place"], "room")).as_py(),
        "tags": len([value for value in tags if value is not None]),
        "nulls": rows["host"].null_count,
        "bytes": sum(len(value) for value in rows["raw"].to_pylist() if value is not None),
        "first": pc.min(micros).as_py(),
        "last": pc.max(micros).as_py(),
        "dates": {str(row["date"]): row["id_count"] for row in per_date},
        "on_date": one_date.num_rows,
        "on_date_ids": pc.sum(one_date["id"]).as_py(),
        "types": {field.name: str(field.type) for field in rows.schema},
        "partitions": table.metadata().partition_columns,
    }


def by_duckdb():
    extensions = os.path.join(os.path.dirname(duckdb_extension_delta.__file__), "extensions")
    found = glob.glob(os.path.join(extensions, "v*", "delta.duckdb_extension"))
    db = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    db.execute("SET TimeZone = 'UTC'")
    db.execute(f"LOAD '{found[0]}'")
    scan = f"delta_scan('{path}')"
    one = db.execute(
        f"""select count(*), sum(id)::bigint, sum(price)::varchar, sum(list_sum(items))::bigint, sum(place.room)::bigint,
            sum(len(list_filter(map_values(tags), lambda v: v is not null)))::bigint, count(*) - count(host),
            sum(octet_length(raw))::bigint, epoch_us(min(ts)), epoch_us(max(ts)) from {scan}"""
    ).fetchone()
    names = ["count", "ids", "prices", "items", "inner", "tags", "nulls", "bytes", "first", "last"]
    per_date = db.execute(f"select date::varchar, count(*) from {scan} group by 1").fetchall()
    on_date = db.execute(f"select count(*), sum(id)::bigint from {scan} where date = date '{date}'").fetchone()
    types = db.execute(f"select column_name, column_type from (describe select * from {scan})").fetchall()
    return {
        **dict(zip(names, one)),
        "dates": dict(per_date),
        "on_date": on_date[0],
        "on_date_ids": on_date[1],
        "types": dict(types),
    }


print(json.dumps({"deltalake": by_arrow(), "duckdb": by_duckdb()}))
