-- Files that every node can have, whichever took them in. They are kept in parts of a mebibyte, so that nobody needs a whole
-- one in memory. What is in them changes nothing any more, so only deletes leave dead rows, and those come in ranges.

-- Handed in before a task names them. `needed_at` is when one last did.
CREATE TABLE uploads(id uuid PRIMARY KEY, bytes bigint NOT NULL, needed_at timestamptz NOT NULL) WITH (fillfactor = 70);
CREATE INDEX uploads_needed ON uploads(needed_at);
CREATE TABLE upload_parts(id uuid NOT NULL, n integer NOT NULL, body bytea NOT NULL, PRIMARY KEY (id, n));

-- What attempts left. `file` is made of the path, which may be too long for an index. `bytes` is null for what was meant and
-- left out; `note` is then the reason, and else the sum of the content.
CREATE TABLE artifacts(
    seq bigint NOT NULL,
    bytes bigint,
    attempt integer NOT NULL,
    file uuid NOT NULL,
    path bytea NOT NULL,
    note bytea NOT NULL,
    PRIMARY KEY (seq, attempt, file)
);
CREATE TABLE artifact_parts(
    seq bigint NOT NULL,
    attempt integer NOT NULL,
    n integer NOT NULL,
    file uuid NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (seq, attempt, file, n)
);

-- Who changed what, in the order it was written. As many as are kept have consecutive numbers. `upto` is how many bytes all
-- entries have had so far, this one included.
CREATE TABLE audit(n bigint PRIMARY KEY, upto bigint NOT NULL, body bytea NOT NULL);

-- The mark of the key that secrets in this database are sealed with, as the first node that had one said it; empty when it
-- was given up. A node with another key, or with none, must not hold the lease.
ALTER TABLE node_secret ADD COLUMN sealing bytea;
