-- The tuning database.  `tw db show|merge|verify|export|prune` work on it; so does any SQLite client.
--
-- Rows are never changed.  A job's, record's or confirmation's `digest` is that of all its other columns, so a merge of two
-- databases is the union of their rows: in any order, as often as one likes.

-- What a schedule is for: everything about the machine that schedules and their speed depend on.
CREATE TABLE targets (
  key TEXT NOT NULL PRIMARY KEY,  -- digest of the facts
  facts TEXT NOT NULL             -- JSON: instruction set, caches, registers, threads of a run
) WITHOUT ROWID;

-- What is scheduled, a kernel, or decided about, a node of a network whose Func names the decision in an attribute: a
-- Func up to names, without the values of its constants.
CREATE TABLE tasks (
  key TEXT NOT NULL PRIMARY KEY,  -- tw::structural_digest of the Func, the same on every platform
  func TEXT NOT NULL              -- its text (tensor_ir/SYNTAX.md); of equal ones the first in the order of texts
) WITHOUT ROWID;

-- A tuning job's network, as it was before: for reports.
CREATE TABLE jobs (
  digest TEXT NOT NULL PRIMARY KEY,
  model TEXT NOT NULL,            -- digest of the tasks of the network
  name TEXT NOT NULL,             -- of the network, for people
  target TEXT NOT NULL REFERENCES targets (key),
  space INTEGER NOT NULL,
  compiler TEXT NOT NULL,
  seconds REAL NOT NULL,          -- of a run with default schedules
  tasks TEXT NOT NULL,            -- JSON: [{"key", "name", "groups", "seconds", "flops", "bytes"}, …] of a run; first nodes
                                  -- that are decided about, then kernels of the network with what was adopted of that
  peak_flops REAL NOT NULL,       -- f32 operations a second that the machine was measured to do; 0: not measured
  bandwidth REAL NOT NULL,        -- bytes a second that it was measured to read
  machine TEXT NOT NULL,          -- the CPU's name, for people
  budget REAL NOT NULL,           -- seconds
  seed INTEGER NOT NULL,
  started_at INTEGER NOT NULL     -- seconds since 1970, UTC
) WITHOUT ROWID;
CREATE INDEX jobs_of_model ON jobs (model);

-- One candidate, tried once.
CREATE TABLE records (
  digest TEXT NOT NULL PRIMARY KEY,
  task TEXT NOT NULL REFERENCES tasks (key),
  target TEXT NOT NULL REFERENCES targets (key),
  space INTEGER NOT NULL,         -- version of the space that the decisions are a point of
  compiler TEXT NOT NULL,         -- build id of the compiler
  decisions TEXT NOT NULL,        -- "tile=14x2 rows=4" or "winograd=0": what differs from the analytic choices
  trace TEXT NOT NULL,            -- the whole schedule; replaying it gives the Func that was measured.  Of a node: empty
  predicted REAL NOT NULL,        -- time by the default's that the search expected before it measured; 0: nothing
  status TEXT NOT NULL CHECK (status IN ('ok', 'timeout', 'crash', 'wrong', 'spill', 'refused')),
  detail TEXT NOT NULL,           -- of what is not ok, for people
  samples TEXT NOT NULL,          -- JSON: [seconds of the incumbent, of the candidate] of runs side by side; of a node:
                                  -- of the steps of the network that the choice changes, where devices measured in runs
                                  -- of the default network
  ratio REAL NOT NULL,            -- median of candidate / incumbent; 0 where nothing was measured
  ratio_low REAL NOT NULL,        -- its 95 % confidence interval
  ratio_high REAL NOT NULL,
  ratio_to_default REAL NOT NULL, -- to the analytic default, by way of the incumbents since
  machine TEXT NOT NULL,          -- the CPU's name, for people
  measured_at INTEGER NOT NULL    -- seconds since 1970, UTC
) WITHOUT ROWID;
CREATE INDEX records_of_task ON records (target, task, space, compiler);

-- A record in its network: only what made one no slower is used, and nothing that was found to slow more of them down.
CREATE TABLE confirmations (
  digest TEXT NOT NULL PRIMARY KEY,
  record TEXT NOT NULL REFERENCES records (digest),
  model TEXT NOT NULL,            -- digest of the tasks of the network
  ratio REAL NOT NULL,            -- network with this and others by network of the defaults alone
  verdict INTEGER NOT NULL CHECK (verdict IN (-1, 1)),
  measured_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX confirmations_of_record ON confirmations (record);
