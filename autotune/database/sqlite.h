// SQLite's C interface with owners and errors.
#pragma once

#include <sqlite3.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace tw::autotune {

// A prepared statement; values are bound by position from 1, columns counted from 0.
class Statement {
 public:
  Statement(sqlite3* connection, std::string_view sql);
  Statement& bind(int position, std::string_view text);
  Statement& bind(int position, int64_t number);
  Statement& bind(int position, double number);
  bool step();  // to the next row; false: there is none
  // Runs to its end and can be bound again.
  void run();
  int columns() const { return sqlite3_column_count(statement_.get()); }
  std::string name(int column) const { return sqlite3_column_name(statement_.get(), column); }
  int type(int column) const { return sqlite3_column_type(statement_.get(), column); }
  std::string text(int column) const;
  int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  double real(int column) const { return sqlite3_column_double(statement_.get(), column); }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  sqlite3* connection_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Connection {
 public:
  Connection(std::filesystem::path path, bool is_writable);
  sqlite3* get() const { return connection_.get(); }
  void execute(const char* sql) const;
  int64_t number(std::string_view sql) const;  // the one value that the query gives
  Statement prepare(std::string_view sql) const { return {get(), sql}; }

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close(connection); }
  };
  std::unique_ptr<sqlite3, Close> connection_;
};

// All or nothing: rolled back unless committed.
class Transaction {
 public:
  explicit Transaction(const Connection& connection) : connection_(connection) {
    connection_.execute("BEGIN IMMEDIATE");
  }
  ~Transaction() {
    if (!is_committed_) sqlite3_exec(connection_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() {
    connection_.execute("COMMIT");
    is_committed_ = true;
  }

 private:
  const Connection& connection_;
  bool is_committed_ = false;
};

}  // namespace tw::autotune
