-- Who caused each schema version: the address that declared it, or that sent the rows. Versions from before this migration do not say.

ALTER TABLE schema_versions ADD COLUMN actor TEXT;
