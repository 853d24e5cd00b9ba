// Every row travels as a JSON object of its columns: digests, lines of an export and merges are all made of that.
#include "autotune/database/database.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "autotune/database/sqlite.h"
#include "runtime/error.h"
#include "schedule/decisions.h"
#include "schedule/trace.h"
#include "tensor_ir/digest.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/parser.h"

namespace tw::autotune {

using nlohmann::json;

// As rows.
void to_json(json& row, const Sample& sample) {
  row = {sample.incumbent, sample.candidate};
}
void from_json(const json& row, Sample& sample) {
  sample = {row.at(0), row.at(1)};
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Record, digest, task, target, space, compiler, decisions, trace, predicted, status,
                                   detail, samples, ratio, ratio_low, ratio_high, ratio_to_default, machine,
                                   measured_at)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Confirmation, record, model, ratio, verdict, measured_at)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobTask, key, name, groups, seconds, flops, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobRow, model, name, target, space, compiler, seconds, tasks, peak_flops, bandwidth,
                                   machine, budget, seed, started_at)

namespace {

// Of a record in a query: more networks say that it makes them faster than say the opposite.
constexpr const char* is_winner =
    "status = 'ok' AND (SELECT sum(verdict) FROM confirmations WHERE record = records.digest) > 0";

constexpr char schema[] =
#include "autotune/schema.inc"
    ;
constexpr int64_t schema_version = 1;
constexpr int64_t application_id = 0x54574442;  // "TWDB"
constexpr size_t longest_line = size_t{16} << 20;

enum class Kind { text, integer, real };

struct Column {
  const char* name;
  Kind kind;
};

struct Table {
  const char* name;
  std::vector<Column> columns;  // the key first
  bool has_digest;              // the key is the digest of the other columns
};

// In the order in which rows refer to each other.
const std::vector<Table>& tables() {
  constexpr Kind text = Kind::text, integer = Kind::integer, real = Kind::real;
  static const std::vector<Table> list = {
      {"targets", {{"key", text}, {"facts", text}}, false},
      {"tasks", {{"key", text}, {"func", text}}, false},
      {"jobs",
       {{"digest", text},
        {"model", text},
        {"name", text},
        {"target", text},
        {"space", integer},
        {"compiler", text},
        {"seconds", real},
        {"tasks", text},
        {"peak_flops", real},
        {"bandwidth", real},
        {"machine", text},
        {"budget", real},
        {"seed", integer},
        {"started_at", integer}},
       true},
      {"records",
       {{"digest", text},
        {"task", text},
        {"target", text},
        {"space", integer},
        {"compiler", text},
        {"decisions", text},
        {"trace", text},
        {"predicted", real},
        {"status", text},
        {"detail", text},
        {"samples", text},
        {"ratio", real},
        {"ratio_low", real},
        {"ratio_high", real},
        {"ratio_to_default", real},
        {"machine", text},
        {"measured_at", integer}},
       true},
      {"confirmations",
       {{"digest", text},
        {"record", text},
        {"model", text},
        {"ratio", real},
        {"verdict", integer},
        {"measured_at", integer}},
       true},
  };
  return list;
}

const Table& table_of(std::string_view name) {
  const auto found = std::find_if(tables().begin(), tables().end(), [&](const Table& t) { return t.name == name; });
  check(found != tables().end(), "database: the table is one of schema.sql");
  return *found;
}

std::string columns_of(const Table& table) {
  std::string text;
  for (const Column& column : table.columns) text += (text.empty() ? "" : ", ") + std::string(column.name);
  return text;
}

std::string text_of(const json& row) {
  return row.dump(-1, ' ', false, json::error_handler_t::replace);  // not all that programs say is UTF-8
}

std::string digest_of_row(const Table& table, json row) {
  row.erase(table.columns[0].name);
  return digest_of(text_of(row));
}

// The row that a statement over columns_of(table) stands at.
json read_row(const Table& table, const Statement& statement) {
  json row;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const auto [name, kind] = table.columns[i];
    const int at = static_cast<int>(i);
    if (kind == Kind::text) row[name] = statement.text(at);
    if (kind == Kind::integer) row[name] = statement.integer(at);
    if (kind == Kind::real) row[name] = statement.real(at);
  }
  return row;
}

void for_each_row(const Connection& connection, const Table& table, const std::function<void(const json&)>& visit) {
  const std::string columns = columns_of(table);
  Statement statement = connection.prepare("SELECT " + columns + " FROM " + table.name + " ORDER BY 1");
  while (statement.step()) visit(read_row(table, statement));
}

// Whether it changed anything.
bool insert(const Connection& connection, const Table& table, const json& row) {
  std::string values;
  for (size_t i = 0; i < table.columns.size(); ++i) values += i ? ", ?" : "?";
  // Equal tasks may come with different names: whichever comes first in the order of texts stays.
  const std::string column = table.columns[1].name;
  const std::string on_conflict = table.has_digest ? "DO NOTHING"
                                                   : "DO UPDATE SET " + column + " = excluded." + column +
                                                         " WHERE excluded." + column + " < " + column;
  Statement statement =
      connection.prepare("INSERT INTO " + std::string(table.name) + " (" + columns_of(table) + ") VALUES (" + values +
                         ") ON CONFLICT (" + table.columns[0].name + ") " + on_conflict);
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const auto [name, kind] = table.columns[i];
    const int at = static_cast<int>(i) + 1;
    if (kind == Kind::text) statement.bind(at, row.at(name).get_ref<const std::string&>());
    if (kind == Kind::integer) statement.bind(at, row.at(name).get<int64_t>());
    if (kind == Kind::real) statement.bind(at, row.at(name).get<double>());
  }
  statement.run();
  return sqlite3_changes(connection.get()) > 0;
}

// What is wrong with a row by itself; empty: nothing.
std::string problem_of(const Table& table, const json& row) {
  for (const auto& [name, kind] : table.columns) {
    const auto found = row.find(name);
    if (found == row.end()) return std::string("it has no ") + name;
    const bool fits = kind == Kind::text      ? found->is_string()
                      : kind == Kind::integer ? found->is_number_integer()
                                              : found->is_number();
    if (!fits) return std::string(name) + " is of another type";
  }
  try {
    const std::string key = row.at(table.columns[0].name);
    if (table.has_digest && key != digest_of_row(table, row)) return "its digest is another: it was changed";
    if (table.name == std::string_view("targets") && key != digest_of(row.at("facts").get<std::string>()))
      return "its key is not that of its facts";
    if (table.name == std::string_view("tasks") &&
        key != structural_digest(parse_task(row.at("func").get<std::string>())))
      return "its key is not that of its Func";
    if (table.name == std::string_view("jobs")) {
      for (const json& task : json::parse(row.at("tasks").get<std::string>()))
        if (!task.at("key").is_string() || !task.at("name").is_string() || !(task.at("seconds").get<double>() >= 0))
          return "a task of it is none";
    }
    if (table.name == std::string_view("records")) {
      parse_decisions(row.at("decisions").get<std::string>());
      parse_trace(row.at("trace").get<std::string>());
      const json samples = json::parse(row.at("samples").get<std::string>());
      for (const json& sample : samples)
        if (!(sample.at(0).get<double>() > 0) || !(sample.at(1).get<double>() > 0)) return "a sample is no time";
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// The columns "samples" and "tasks" are lists, as the text of JSON.
json as_text(json row, const char* column) {
  row[column] = text_of(row[column]);
  return row;
}

Record record_of(json row) {
  const json samples = json::parse(row.at("samples").get<std::string>(), nullptr, false);
  row["samples"] = json::array();
  for (const json& sample : samples)
    if (sample.is_array() && sample.size() == 2 && sample[0].is_number() && sample[1].is_number())
      row["samples"].push_back(sample);
  return row;
}

}  // namespace

struct Database::State {
  std::filesystem::path path;
  Connection connection;

  // Those that the rest of the query names.
  template <class... Values>
  std::vector<Record> records(const std::string& rest, const Values&... values) const {
    const Table& table = table_of("records");
    Statement statement = connection.prepare("SELECT " + columns_of(table) + " FROM records WHERE " + rest);
    int position = 0;
    (statement.bind(++position, values), ...);
    std::vector<Record> result;
    while (statement.step()) result.push_back(record_of(read_row(table, statement)));
    return result;
  }

  // Adds the row with its digest, which it gives.
  std::string add(std::string_view name, json row) {
    const Table& table = table_of(name);
    if (table.has_digest) row["digest"] = digest_of_row(table, row);
    const std::string problem = problem_of(table, row);
    check(problem.empty(), ("database: a row of " + std::string(name) + ": " + problem).c_str());
    insert(connection, table, row);
    return row.at(table.columns[0].name);
  }
};

Database::Database(const std::filesystem::path& path, Access access)
    : state_(new State{path, Connection(path, access == Access::write)}) {
  const Connection& connection = state_->connection;
  const auto is_empty = [&] { return connection.number("SELECT count(*) FROM sqlite_schema") == 0; };
  if (access == Access::read && is_empty()) {
    throw Error(ErrorCode::file, path.string() + ": this database is empty: who was to make it has been ended before" +
                                     "\n  help: `tw tune --db` goes on with it");
  }
  if (access == Access::write && is_empty()) {
    Transaction transaction(connection);
    if (is_empty()) {  // no other job was faster
      connection.execute(schema);
      connection.execute(("PRAGMA application_id = " + std::to_string(application_id)).c_str());
      connection.execute(("PRAGMA user_version = " + std::to_string(schema_version)).c_str());
    }
    transaction.commit();
  }
  if (connection.number("PRAGMA application_id") != application_id ||
      connection.number("PRAGMA user_version") != schema_version) {
    throw Error(ErrorCode::file, path.string() + ": this is no tuning database of this version" +
                                     "\n  help: `tw tune --db` makes one; `tw db export` and `merge` move rows");
  }
}

Database::~Database() = default;
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;

void Database::add_target(const std::string& key, const std::string& facts) {
  state_->add("targets", {{"key", key}, {"facts", facts}});
}
void Database::add_task(const std::string& key, const std::string& func) {
  state_->add("tasks", {{"key", key}, {"func", func}});
}
void Database::add(const JobRow& job) {
  state_->add("jobs", as_text(job, "tasks"));
}
std::string Database::add(const Record& record) {
  return state_->add("records", as_text(record, "samples"));
}
void Database::add(const Confirmation& confirmation) {
  state_->add("confirmations", confirmation);
}

std::vector<Record> Database::records(const std::string& target, const std::string& task, int64_t space,
                                      const std::string& compiler) const {
  return state_->records("target = ? AND task = ? AND space = ? AND compiler = ? ORDER BY digest", target, task, space,
                         compiler);
}

std::vector<Record> Database::records(const std::string& target) const {
  return state_->records("target = ? ORDER BY task, digest", target);
}

Func parse_task(const std::string& text) {
  Func func = parse_func(text);
  for (Buffer& buffer : func.buffers) {
    if (func.attributes.erase("constant:" + buffer->name) == 0) continue;
    BufferNode node = *buffer.get();
    node.is_constant = true;
    const Buffer constant(std::move(node));
    func.body = replace_buffer(func.body, buffer, constant);
    buffer = constant;
  }
  return func;
}

std::string Database::func_text(const std::string& task) const {
  Statement statement = state_->connection.prepare("SELECT func FROM tasks WHERE key = ?");
  statement.bind(1, task);
  return statement.step() ? statement.text(0) : "";
}

std::vector<Record> Database::winners(const std::string& target, int64_t space, const std::string& compiler) const {
  std::vector<Record> result = state_->records("target = ? AND space = ? AND compiler = ? AND " +
                                                   std::string(is_winner) + " ORDER BY task, ratio_to_default, digest",
                                               target, space, compiler);
  const auto others = std::ranges::unique(result, {}, &Record::task);
  result.erase(others.begin(), others.end());
  return result;
}

std::vector<std::string> Database::tasks_with_winners(const std::string& target) const {
  Statement statement =
      state_->connection.prepare(std::string("SELECT DISTINCT task FROM records WHERE target = ? AND ") + is_winner);
  statement.bind(1, target);
  std::vector<std::string> result;
  while (statement.step()) result.push_back(statement.text(0));
  return result;
}

Database::Summary Database::summary() const {
  const Connection& connection = state_->connection;
  Summary summary;
  summary.targets = connection.number("SELECT count(*) FROM targets");
  summary.tasks = connection.number("SELECT count(*) FROM tasks");
  summary.jobs = connection.number("SELECT count(*) FROM jobs");
  summary.records = connection.number("SELECT count(*) FROM records");
  summary.confirmations = connection.number("SELECT count(*) FROM confirmations");
  Statement statement = connection.prepare("SELECT status, count(*) FROM records GROUP BY status ORDER BY status");
  while (statement.step()) summary.by_status.emplace_back(statement.text(0), statement.integer(1));
  return summary;
}

void Database::export_lines(const std::function<void(const std::string&)>& line) const {
  for (const Table& table : tables()) {
    for_each_row(state_->connection, table, [&](json row) {
      row["table"] = table.name;
      line(text_of(row));
    });
  }
}

int64_t Database::merge(const std::filesystem::path& other) {
  int64_t added = 0;
  char magic[16] = {};
  std::ifstream file(other, std::ios::binary);
  if (!file) throw Error(ErrorCode::file, other.string() + ": cannot be read\n  help: check the path");
  file.read(magic, sizeof magic);
  if (std::string_view(magic, sizeof magic) == std::string_view("SQLite format 3\0", 16)) {
    file.close();
    const Database source(other, Access::read);
    Transaction transaction(state_->connection);
    for (const Table& table : tables()) {
      for_each_row(source.state_->connection, table, [&](const json& row) {
        if (const std::string problem = problem_of(table, row); !problem.empty())
          throw Error(ErrorCode::file, other.string() + ": a row of " + table.name + ": " + problem +
                                           "\n  help: `tw db verify` shows what is wrong; nothing was merged");
        added += insert(state_->connection, table, row);
      });
    }
    transaction.commit();
    return added;
  }
  file.clear();
  file.seekg(0);
  Transaction transaction(state_->connection);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const auto fail = [&](const std::string& problem) {
      throw Error(ErrorCode::file, other.string() + ":" + std::to_string(number) + ": " + problem +
                                       "\n  help: lines are as `tw db export` writes them; nothing was merged");
    };
    if (line.size() > longest_line) fail("the line is longer than 16 MiB");
    json row = json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("table") || !row["table"].is_string()) fail("this is no row of a database");
    const auto table =
        std::find_if(tables().begin(), tables().end(), [&](const Table& t) { return row["table"] == t.name; });
    if (table == tables().end()) fail("there is no table " + row["table"].dump());
    row.erase("table");
    if (const std::string problem = problem_of(*table, row); !problem.empty()) fail(problem);
    if (row.size() != table->columns.size()) fail("it has other columns than the table");
    added += insert(state_->connection, *table, row);
  }
  transaction.commit();
  return added;
}

std::vector<std::string> Database::verify() const {
  std::vector<std::string> problems;
  Statement integrity = state_->connection.prepare("PRAGMA integrity_check");
  while (integrity.step())
    if (integrity.text(0) != "ok") problems.push_back(integrity.text(0));
  Statement references = state_->connection.prepare("PRAGMA foreign_key_check");
  while (references.step()) problems.push_back("a row of " + references.text(0) + " refers to one that is missing");
  for (const Table& table : tables()) {
    for_each_row(state_->connection, table, [&](const json& row) {
      if (const std::string problem = problem_of(table, row); !problem.empty())
        problems.push_back(std::string(table.name) + " " + row.at(table.columns[0].name).get<std::string>() + ": " +
                           problem);
    });
  }
  return problems;
}

int64_t Database::prune(int64_t space, const std::string& compiler) {
  const Connection& connection = state_->connection;
  Transaction transaction(connection);
  const auto count = [&] {
    int64_t rows = 0;
    for (const Table& table : tables()) rows += connection.number("SELECT count(*) FROM " + std::string(table.name));
    return rows;
  };
  const int64_t before = count();
  connection
      .prepare(
          "DELETE FROM confirmations WHERE record IN (SELECT digest FROM records WHERE space != ? OR compiler != ?)")
      .bind(1, space)
      .bind(2, compiler)
      .run();
  connection.prepare("DELETE FROM records WHERE space != ? OR compiler != ?").bind(1, space).bind(2, compiler).run();
  connection.prepare("DELETE FROM jobs WHERE space != ? OR compiler != ?").bind(1, space).bind(2, compiler).run();
  connection.execute("DELETE FROM tasks WHERE key NOT IN (SELECT task FROM records)");
  connection.execute(
      "DELETE FROM targets WHERE key NOT IN (SELECT target FROM records) AND key NOT IN (SELECT target FROM jobs)");
  transaction.commit();
  return before - count();
}

}  // namespace tw::autotune
