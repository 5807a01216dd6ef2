-- +goose Up

-- What a node was offered and does not follow, as JSON; NULL where it follows.
ALTER TABLE reports ADD COLUMN refused TEXT;
