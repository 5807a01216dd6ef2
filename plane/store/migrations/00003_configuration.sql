-- +goose Up

-- The plane's own configuration as it was last applied; empty while the plane
-- has what its file says.
ALTER TABLE mesh ADD COLUMN plane_config TEXT NOT NULL DEFAULT '';
