-- The catalog: what the node knows beside the log. It can be rebuilt from the log's Define records.

CREATE TABLE namespaces (
    name       TEXT PRIMARY KEY NOT NULL,
    created_at BIGINT NOT NULL -- microseconds since the epoch
);

CREATE TABLE tables (
    id         TEXT PRIMARY KEY NOT NULL, -- UUID; never reused
    namespace  TEXT NOT NULL REFERENCES namespaces (name),
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (namespace, name)
);

CREATE TABLE schema_versions (
    table_id   TEXT NOT NULL REFERENCES tables (id),
    version    BIGINT NOT NULL, -- starts at 1
    spec       TEXT NOT NULL, -- the definition, JSON
    created_at BIGINT NOT NULL,
    PRIMARY KEY (table_id, version)
);

CREATE TABLE flushes (
    table_id      TEXT NOT NULL REFERENCES tables (id),
    incarnation   TEXT NOT NULL, -- 16 hex digits
    sequence      BIGINT NOT NULL, -- highest seal sequence in the commit
    delta_version BIGINT NOT NULL,
    row_count     BIGINT NOT NULL,
    byte_count    BIGINT NOT NULL, -- of the data files
    committed_at  BIGINT NOT NULL,
    PRIMARY KEY (table_id, incarnation, sequence)
);
