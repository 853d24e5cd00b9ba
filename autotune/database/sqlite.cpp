#include "autotune/database/sqlite.h"

#include "runtime/error.h"

namespace tw::autotune {
namespace {

constexpr int patience_milliseconds = 10000;  // for another writer

[[noreturn]] void fail(sqlite3* connection) {
  const char* path = sqlite3_db_filename(connection, "main");
  std::string text = std::string(path ? path : "the database") + ": " + sqlite3_errmsg(connection);
  switch (sqlite3_errcode(connection)) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      text += "\n  help: this is no tuning database or a damaged one; `tw db verify` says more";
      break;
    case SQLITE_BUSY:
      text += "\n  help: another job writes to it; end that first";
      break;
    default:
      text += "\n  help: check the path, the permissions and the space on the disk";
  }
  throw Error(ErrorCode::file, text);
}

}  // namespace

Statement::Statement(sqlite3* connection, std::string_view sql) : connection_(connection) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(connection, sql.data(), static_cast<int>(sql.size()), &statement, nullptr) != SQLITE_OK)
    fail(connection);
  statement_.reset(statement);
}

Statement& Statement::bind(int position, std::string_view text) {
  if (sqlite3_bind_text64(statement_.get(), position, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8) !=
      SQLITE_OK)
    fail(connection_);
  return *this;
}

Statement& Statement::bind(int position, int64_t number) {
  if (sqlite3_bind_int64(statement_.get(), position, number) != SQLITE_OK) fail(connection_);
  return *this;
}

Statement& Statement::bind(int position, double number) {
  if (sqlite3_bind_double(statement_.get(), position, number) != SQLITE_OK) fail(connection_);
  return *this;
}

bool Statement::step() {
  const int result = sqlite3_step(statement_.get());
  if (result != SQLITE_ROW && result != SQLITE_DONE) fail(connection_);
  return result == SQLITE_ROW;
}

void Statement::run() {
  while (step()) {
  }
  sqlite3_reset(statement_.get());
}

std::string Statement::text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_.get(), column);
  return text ? std::string(reinterpret_cast<const char*>(text),
                            static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column)))
              : std::string();
}

Connection::Connection(std::filesystem::path path, bool is_writable) {
  sqlite3* connection = nullptr;
  // Readers write nothing, but may have to undo what a job that was killed had not committed.
  const int flags = SQLITE_OPEN_READWRITE | (is_writable ? SQLITE_OPEN_CREATE : 0);
  const int result = sqlite3_open_v2(path.c_str(), &connection, flags, nullptr);
  connection_.reset(connection);
  if (result != SQLITE_OK) {
    throw Error(ErrorCode::file, path.string() + ": " + (connection ? sqlite3_errmsg(connection) : "out of memory") +
                                     "\n  help: `tw tune --db` makes the database; check the path and its permissions");
  }
  sqlite3_busy_timeout(connection, patience_milliseconds);
  execute("PRAGMA foreign_keys = ON");
  execute("PRAGMA trusted_schema = OFF");
  if (is_writable) {
    execute("PRAGMA journal_mode = DELETE");
    execute("PRAGMA synchronous = FULL");
  } else {
    execute("PRAGMA query_only = ON");
  }
}

void Connection::execute(const char* sql) const {
  if (sqlite3_exec(get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail(get());
}

int64_t Connection::number(std::string_view sql) const {
  Statement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

}  // namespace tw::autotune
