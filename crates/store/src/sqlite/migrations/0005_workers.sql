-- Workers that registered, until they are removed or have been away for too long. All of it is in `body`: nobody looks for
-- one but by its id, and a start reads them all.
CREATE TABLE workers(
    id BLOB PRIMARY KEY,
    body BLOB NOT NULL
);
