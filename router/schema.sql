-- The router's journal. One row a request and a worker's life, one row each change of their state.
-- Times are milliseconds since 1970; ids are hexadecimal text, as logs and responses show them.
-- No prompt and no answer text is kept here.

CREATE TABLE IF NOT EXISTS workers (
  boot_id        TEXT PRIMARY KEY,
  node           TEXT NOT NULL,
  role           TEXT NOT NULL,
  address        TEXT NOT NULL,
  version        TEXT NOT NULL,
  model          TEXT NOT NULL,
  state          TEXT NOT NULL,
  reason         TEXT,
  first_ms       INTEGER NOT NULL,
  changed_ms     INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS worker_states (
  boot_id        TEXT NOT NULL,
  at_ms          INTEGER NOT NULL,
  state          TEXT NOT NULL,
  reason         TEXT
);

CREATE TABLE IF NOT EXISTS requests (
  number         INTEGER PRIMARY KEY,
  id             TEXT NOT NULL UNIQUE,
  router         TEXT NOT NULL,
  client_id      TEXT NOT NULL,
  endpoint       TEXT NOT NULL,
  accepted_ms    INTEGER NOT NULL,
  state          TEXT NOT NULL,
  prefill        TEXT,
  decode         TEXT,
  prompt_tokens  INTEGER,
  max_tokens     INTEGER,
  output_tokens  INTEGER,
  first_token_us INTEGER,
  duration_us    INTEGER,
  http_status    INTEGER,
  outcome        TEXT,
  reason         TEXT,
  tenant         TEXT,
  trace_id       TEXT,
  model          TEXT
);

CREATE TABLE IF NOT EXISTS request_states (
  request        TEXT NOT NULL,
  at_ms          INTEGER NOT NULL,
  state          TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS request_states_request ON request_states (request);
CREATE INDEX IF NOT EXISTS worker_states_boot_id ON worker_states (boot_id);
