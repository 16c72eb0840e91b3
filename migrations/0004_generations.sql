-- Which Delta version has the rows of which records of the log, so that a receipt can be asked for later. Old rows are removed; without
-- one, the rows of a record that has left the log are in the table, in a version that is no longer known.

CREATE TABLE generations (
    table_id      TEXT NOT NULL,
    incarnation   TEXT NOT NULL, -- 16 hex digits; sealed the generation
    sequence      BIGINT NOT NULL, -- its seal sequence
    first_lsn     BIGINT NOT NULL, -- of its first record
    last_lsn      BIGINT NOT NULL, -- of its last record
    delta_version BIGINT NOT NULL,
    dead          BIGINT NOT NULL, -- 1: its rows are in the namespace's dead letters instead
    committed_at  BIGINT NOT NULL, -- microseconds since the epoch
    PRIMARY KEY (table_id, incarnation, sequence)
);

CREATE INDEX generations_by_record ON generations (table_id, last_lsn);
CREATE INDEX generations_by_time ON generations (committed_at);
