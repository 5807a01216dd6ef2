-- +goose Up

-- Since when a node is being retired; NULL while it is not.
ALTER TABLE nodes ADD COLUMN retiring_at INTEGER;
