-- What made each schema version: 'declaration', 'rows' (inferred from the first post), or 'log' (the catalog had lost it).
-- Versions from before this migration do not say.

ALTER TABLE schema_versions ADD COLUMN cause TEXT;
