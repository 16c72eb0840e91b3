-- Data files whose upload has begun and that are in no commit yet. A row is durable before the first byte is sent; it goes once the
-- commit that refers to the file is in the table, or once the file is removed. Losing rows here loses no data, only the knowledge of
-- files that nothing refers to.

CREATE TABLE uploads (
    table_id    TEXT NOT NULL,
    path        TEXT NOT NULL, -- from the table's root; carries a random id
    table_name  TEXT NOT NULL, -- namespace.table
    writer      TEXT NOT NULL, -- node whose commit will refer to the file, UUID
    incarnation TEXT NOT NULL, -- 16 hex digits; sealed the rows
    sequence    BIGINT NOT NULL, -- seal sequence of the rows
    began_at    BIGINT NOT NULL, -- microseconds since the epoch
    PRIMARY KEY (table_id, path)
);
