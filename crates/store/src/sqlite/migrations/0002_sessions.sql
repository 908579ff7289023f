-- An ordered stream of tasks with one key. `n_live` and `last_at` are copies of what `body` says, for filters and
-- retention.
CREATE TABLE sessions(
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    n_live INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX sessions_key ON sessions(key);

-- `line` is set exactly while the task stands in its session's line without a seat. Both columns stand behind the result
-- in the row, so the tick loop never reads them: what it needs of them is in `body` too.
ALTER TABLE tasks ADD COLUMN session INTEGER;
ALTER TABLE tasks ADD COLUMN line INTEGER;
-- A session's whole history: entered once, with the submit.
CREATE INDEX tasks_session ON tasks(session, seq) WHERE session IS NOT NULL;
CREATE INDEX tasks_line ON tasks(session, line) WHERE line IS NOT NULL;

-- What was merged into a task, beyond its own message, as submitted.
CREATE TABLE messages(
    task_seq INTEGER NOT NULL,
    n INTEGER NOT NULL,
    body BLOB NOT NULL,
    spec BLOB NOT NULL,
    PRIMARY KEY (task_seq, n)
) WITHOUT ROWID;

-- Dropped tasks that a session's next run is told of, by their number in the session's count.
CREATE TABLE session_drops(
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    task_seq INTEGER NOT NULL,
    PRIMARY KEY (session, n)
) WITHOUT ROWID;
CREATE INDEX session_drops_task ON session_drops(task_seq);

-- Releases of sessions are kept in the same table, numbers as eight bytes each, highest first:
-- kind 2 members to stop (id: session, before, from; ended: why), 3 surplus seated ones (id: session), 4 the first in line
-- (id: session), 5 a line that is too long (id: session), 6 all sessions after one (id: that one).
