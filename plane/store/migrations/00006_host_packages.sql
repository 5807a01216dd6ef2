-- +goose Up

-- The package of mesh-host that all nodes of an architecture shall have. What one
-- names is kept, whether a declaration names it or not.
CREATE TABLE host_packages (
    architecture TEXT    PRIMARY KEY,
    version      TEXT    NOT NULL,
    content      TEXT    NOT NULL REFERENCES contents (digest),
    since        INTEGER NOT NULL,
    downgrade    INTEGER NOT NULL -- 1: also nodes on which a higher version runs
) STRICT, WITHOUT ROWID;
