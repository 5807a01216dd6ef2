-- +goose Up

-- What declarations name by digest. A content is there for as long as a
-- declaration that is kept names it, and no declaration names one that is not.
CREATE TABLE contents (
    digest TEXT    PRIMARY KEY CHECK (length(digest) = 64),
    bytes  INTEGER NOT NULL CHECK (bytes >= 1)
) STRICT, WITHOUT ROWID;

-- In parts of one length, that of link.MaxBlobPart; the last may be shorter.
CREATE TABLE content_parts (
    content TEXT    NOT NULL REFERENCES contents (digest) ON DELETE CASCADE,
    part    INTEGER NOT NULL CHECK (part >= 0),
    data    BLOB    NOT NULL,
    PRIMARY KEY (content, part)
) STRICT;

CREATE TABLE declared_contents (
    node       INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    content    TEXT    NOT NULL REFERENCES contents (digest),
    PRIMARY KEY (node, epoch, generation, content),
    FOREIGN KEY (node, epoch, generation) REFERENCES declarations (node, epoch, generation) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX declared_contents_content ON declared_contents (content);
