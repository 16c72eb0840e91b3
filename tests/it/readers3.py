"""Reads Delta tables with three readers that know nothing of Penstock, and prints what each finds as JSON.

Arguments: a date of the `date` partition, then paths of tables that have a 64-bit column `id`.
"""

import datetime
import glob
import json
import os
import sys

import deltalake
import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow.compute as pc

date, paths = sys.argv[1], sys.argv[2:]


def by_deltalake(path):
    table = deltalake.DeltaTable(path)
    rows = table.to_pyarrow_table(columns=["id", "date"])
    one = table.to_pyarrow_table(filters=[("date", "=", datetime.date.fromisoformat(date))], columns=["id"])["id"]
    dates = rows.group_by("date").aggregate([("id", "count")]).to_pylist()
    return {
        "count": rows.num_rows,
        "distinct": len(pc.unique(rows["id"])),
        "sum": pc.sum(rows["id"]).as_py() or 0,
        "dates": {str(row["date"]): row["id_count"] for row in dates},
        "on_date": [len(one), pc.sum(one).as_py() or 0],
    }


def by_polars(path):
    rows = pl.scan_delta(path).select("id", "date")
    one = rows.filter(pl.col("date") == datetime.date.fromisoformat(date)).select(pl.len(), pl.col("id").sum()).collect().row(0)
    total = rows.select(pl.len(), pl.col("id").n_unique().alias("distinct"), pl.col("id").sum()).collect().row(0)
    dates = rows.group_by("date").agg(pl.len()).collect()
    return {
        "count": total[0],
        "distinct": total[1],
        "sum": total[2],
        "dates": {str(day): count for day, count in dates.rows()},
        "on_date": list(one),
    }


extensions = os.path.join(os.path.dirname(duckdb_extension_delta.__file__), "extensions")
db = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
db.execute("LOAD '{}'".format(glob.glob(os.path.join(extensions, "v*", "delta.duckdb_extension"))[0]))


def by_duckdb(path):
    scan = f"delta_scan('{path}')"
    total = db.execute(f"select count(*), count(distinct id), coalesce(sum(id), 0)::bigint from {scan}").fetchone()
    dates = db.execute(f"select date::varchar, count(*) from {scan} group by 1").fetchall()
    one = db.execute(f"select count(*), coalesce(sum(id), 0)::bigint from {scan} where date = date '{date}'").fetchone()
    return {"count": total[0], "distinct": total[1], "sum": total[2], "dates": dict(dates), "on_date": list(one)}


readers = {"deltalake": by_deltalake, "polars": by_polars, "duckdb": by_duckdb}
print(json.dumps({name: [reader(path) for path in paths] for name, reader in readers.items()}))
