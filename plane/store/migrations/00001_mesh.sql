-- +goose Up

-- Times are milliseconds since 1970 UTC. A node that was removed and a key that
-- was forgotten stay as rows, so that neither comes back unnoticed.

CREATE TABLE mesh (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    name            TEXT    NOT NULL,
    epoch           INTEGER NOT NULL CHECK (epoch >= 1),
    link_key        TEXT    NOT NULL,
    declaration_key TEXT    NOT NULL,
    created_at      INTEGER NOT NULL
) STRICT;

CREATE TABLE nodes (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL,
    machine_id  TEXT    NOT NULL,
    profile     TEXT    NOT NULL,
    inventory   TEXT    NOT NULL,
    enrolled_at INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    removed_at  INTEGER
) STRICT;
CREATE UNIQUE INDEX nodes_live_name    ON nodes (name)       WHERE removed_at IS NULL;
CREATE INDEX nodes_machine ON nodes (machine_id);
CREATE UNIQUE INDEX nodes_live_machine ON nodes (machine_id) WHERE removed_at IS NULL;

CREATE TABLE keys (
    key          TEXT    PRIMARY KEY,
    node         INTEGER NOT NULL REFERENCES nodes (id),
    since        INTEGER NOT NULL,
    forgotten_at INTEGER
) STRICT;
CREATE UNIQUE INDEX keys_live_node ON keys (node) WHERE forgotten_at IS NULL;

-- Overlay addresses that are not free. Bytes in network order sort as addresses do.
CREATE TABLE addresses (
    address BLOB    PRIMARY KEY,
    node    INTEGER NOT NULL REFERENCES nodes (id),
    CHECK (length(address) IN (4, 16))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX addresses_one_per_family ON addresses (node, length(address));

CREATE TABLE assignments (
    node   INTEGER NOT NULL REFERENCES nodes (id),
    module TEXT    NOT NULL,
    since  INTEGER NOT NULL,
    PRIMARY KEY (node, module)
) STRICT, WITHOUT ROWID;
CREATE INDEX assignments_module ON assignments (module);

-- The secret is there only while the token can still be spent.
CREATE TABLE tokens (
    id         BLOB    PRIMARY KEY CHECK (length(id) = 8),
    secret     BLOB    CHECK (secret IS NULL OR length(secret) = 16),
    issued_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    spent_at   INTEGER,
    spent_by   TEXT    REFERENCES keys (key),
    CHECK ((spent_at IS NULL) = (spent_by IS NULL)),
    CHECK (spent_at IS NULL OR secret IS NULL)
) STRICT, WITHOUT ROWID;

CREATE TABLE token_modules (
    token  BLOB NOT NULL REFERENCES tokens (id),
    module TEXT NOT NULL,
    PRIMARY KEY (token, module)
) STRICT, WITHOUT ROWID;

-- The newest generation of each node and the one before it, which a host may
-- just be fetching.
CREATE TABLE declarations (
    node       INTEGER NOT NULL REFERENCES nodes (id),
    epoch      INTEGER NOT NULL CHECK (epoch >= 1),
    generation INTEGER NOT NULL CHECK (generation >= 1),
    digest     TEXT    NOT NULL,
    content    TEXT    NOT NULL,
    signed     BLOB    NOT NULL,
    since      INTEGER NOT NULL,
    PRIMARY KEY (node, epoch, generation)
) STRICT;

-- The last report of each node.
CREATE TABLE reports (
    node       INTEGER PRIMARY KEY REFERENCES nodes (id),
    at         INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    digest     TEXT    NOT NULL,
    counts     TEXT    NOT NULL,
    results    TEXT    NOT NULL
) STRICT;
