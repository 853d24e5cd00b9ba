// Rows go in once, come back as they were, and merge in any order.
#include "autotune/database/database.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "autotune/database/sqlite.h"
#include "tensor_ir/digest.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/runtime/test_model.h"
#include "tests/unit/sample_funcs.h"

namespace tw::autotune {
namespace {

using test::caught;
using Access = Database::Access;

const Func& func() {
  static const Func f = test::matmul(4, 8, 3);
  return f;
}

Record make_record(const std::string& decisions, double ratio, const std::string& status = "ok") {
  Record record;
  record.task = structural_digest(func());
  record.target = digest_of("machine");
  record.space = 1, record.compiler = "c0ffee";
  record.decisions = decisions, record.status = status, record.predicted = ratio / 2;
  if (status == "ok") record.samples = {{1e-3, ratio * 1e-3}, {1.1e-3, 1.1e-3 * ratio}};
  record.ratio = record.ratio_to_default = ratio, record.ratio_low = ratio - 0.01, record.ratio_high = ratio + 0.01;
  record.measured_at = 1700000000;
  return record;
}

class DatabaseTest : public testing::Test {
 protected:
  Database open(const std::string& name, Access access = Access::write) {
    Database database(folder_ / name, access);
    if (access == Access::write) {
      database.add_target(digest_of("machine"), "machine");
      database.add_task(structural_digest(func()), to_text(func()));
    }
    return database;
  }
  std::vector<Record> records_of(const Database& database) {
    return database.records(digest_of("machine"), structural_digest(func()), 1, "c0ffee");
  }
  static std::string lines_of(const Database& database) {
    std::string lines;
    database.export_lines([&](const std::string& line) { lines += line + "\n"; });
    return lines;
  }

  test::Folder folder_;
};

TEST(Tasks, ThoseOfEarlierVersionsAreRead) {
  const Func now = test::matmul(4, 8, 3, false, true);
  std::string before = to_text(now);
  const size_t fact = before.find(" constant"), body = before.find(" {");
  ASSERT_LT(fact, body);
  before.insert(body, " attrs {constant:B = 1}");
  before.erase(fact, std::string(" constant").size());
  EXPECT_EQ(structural_digest(parse_task(before)), structural_digest(now));
  EXPECT_EQ(to_text(parse_task(before)), to_text(now));
}

TEST_F(DatabaseTest, records_come_back_as_they_were) {
  {
    Database database = open("a.db");
    const std::string digest = database.add(make_record("rows=4 tile=6x2", 0.9));
    EXPECT_EQ(database.add(make_record("rows=4 tile=6x2", 0.9)), digest);  // the same row again
  }
  const auto records = records_of(open("a.db", Access::read));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].decisions, "rows=4 tile=6x2");
  EXPECT_EQ(records[0].ratio, 0.9);
  EXPECT_EQ(records[0].predicted, 0.45);
  ASSERT_EQ(records[0].samples.size(), 2u);
  EXPECT_EQ(records[0].samples[1].candidate, 1.1e-3 * 0.9);
}

TEST_F(DatabaseTest, only_what_is_asked_for_answers) {
  Database database = open("a.db");
  database.add(make_record("tile=6x2", 0.9));
  const std::string target = digest_of("machine"), task = structural_digest(func());
  EXPECT_EQ(database.records(target, task, 1, "c0ffee").size(), 1u);
  EXPECT_TRUE(database.records(target, task, 2, "c0ffee").empty());
  EXPECT_TRUE(database.records(target, task, 1, "other").empty());
  EXPECT_TRUE(database.records("other", task, 1, "c0ffee").empty());
  EXPECT_TRUE(database.records(target, "other", 1, "c0ffee").empty());
}

TEST_F(DatabaseTest, winners_are_confirmed_and_fastest) {
  Database database = open("a.db");
  const auto winners = [&] { return database.winners(digest_of("machine"), 1, "c0ffee"); };
  const std::string fast = database.add(make_record("tile=6x2", 0.8));
  const std::string slow = database.add(make_record("tile=4x2", 0.9));
  EXPECT_TRUE(winners().empty());
  database.add({slow, "model", 0.99, 1, 1});
  ASSERT_EQ(winners().size(), 1u);
  EXPECT_EQ(winners()[0].digest, slow);
  database.add({fast, "model", 0.98, 1, 2});
  ASSERT_EQ(winners().size(), 1u);
  EXPECT_EQ(winners()[0].digest, fast);
  database.add({fast, "other model", 1.2, -1, 3});  // as many say that it slows their network down
  EXPECT_EQ(winners()[0].digest, slow);
}

// A job that is killed while it writes leaves a journal behind, and pages that are half of the new ones.
TEST_F(DatabaseTest, a_reader_undoes_what_a_killed_job_had_not_committed) {
  std::string committed;
  {
    Database database = open("a.db");
    for (int i = 0; i < 200; ++i) database.add(make_record("tile=" + std::to_string(i), 0.8));
    committed = lines_of(database);
  }
  const std::filesystem::path journal = folder_ / "a.db-journal";
  const pid_t job = fork();
  ASSERT_GE(job, 0);
  if (job == 0) {
    try {
      const Connection connection(folder_ / "a.db", true);
      connection.execute("PRAGMA cache_size = 1");
      connection.execute("BEGIN IMMEDIATE");
      connection.execute("UPDATE records SET ratio = 2, predicted = 3");
      _exit(0);
    } catch (const Error& error) {
      static_cast<void>(write(STDERR_FILENO, error.what(), std::strlen(error.what())));
      _exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(job, &status, 0), job);
  ASSERT_EQ(status, 0);
  ASSERT_GT(std::filesystem::file_size(journal), 0u);
  const Database reader = open("a.db", Access::read);
  EXPECT_EQ(lines_of(reader), committed);
  EXPECT_TRUE(reader.verify().empty());
}

TEST_F(DatabaseTest, a_merge_is_the_union_in_any_order) {
  Database a = open("a.db"), b = open("b.db");
  const std::string in_both = a.add(make_record("tile=6x2", 0.8));
  b.add(make_record("tile=6x2", 0.8));
  b.add(make_record("tile=4x2", 1.1));
  a.add(make_record("tile=3x2", 0, "crash"));
  a.add({in_both, "model", 0.9, 1, 1});
  b.add_task(structural_digest(func()), to_text(func()));

  Database ab = open("ab.db"), ba = open("ba.db");
  EXPECT_EQ(ab.merge(folder_ / "a.db") + ab.merge(folder_ / "b.db"), 4);
  EXPECT_EQ(ba.merge(folder_ / "b.db") + ba.merge(folder_ / "a.db"), 4);
  EXPECT_EQ(lines_of(ab), lines_of(ba));
  EXPECT_EQ(ab.merge(folder_ / "a.db"), 0);
  EXPECT_EQ(ab.merge(folder_ / "ba.db"), 0);

  // By way of text, too.
  std::ofstream(folder_ / "a.jsonl") << lines_of(ab);
  Database from_text(folder_ / "text.db", Access::write);
  EXPECT_EQ(from_text.merge(folder_ / "a.jsonl"), 6);
  EXPECT_EQ(lines_of(from_text), lines_of(ab));
  EXPECT_TRUE(from_text.verify().empty());
}

TEST_F(DatabaseTest, equal_tasks_of_other_names_merge_alike) {
  Func renamed = func();
  renamed.name = "another";
  Database a = open("a.db"), b(folder_ / "b.db", Access::write);
  b.add_target(digest_of("machine"), "machine");
  b.add_task(structural_digest(renamed), to_text(renamed));
  ASSERT_EQ(structural_digest(renamed), structural_digest(func()));
  Database ab = open("ab.db");
  ab.merge(folder_ / "b.db");
  b.merge(folder_ / "a.db");
  EXPECT_EQ(lines_of(ab), lines_of(b));
}

TEST_F(DatabaseTest, a_changed_row_is_found_and_not_merged) {
  open("a.db").add(make_record("tile=6x2", 0.8));
  Connection(folder_ / "a.db", true).execute("UPDATE records SET ratio_to_default = 0.1");
  EXPECT_EQ(open("a.db", Access::read).verify().size(), 1u);
  Database other = open("b.db");
  other.add(make_record("tile=4x2", 0.7));
  const std::string before = lines_of(other);
  EXPECT_EQ(caught([&] { other.merge(folder_ / "a.db"); }).code, ErrorCode::file);
  EXPECT_EQ(lines_of(other), before);
}

TEST_F(DatabaseTest, lines_that_are_none_are_refused_wholly) {
  Database database = open("a.db");
  database.add(make_record("tile=6x2", 0.8));
  const std::string lines = lines_of(database);
  for (const std::string& bad :
       {std::string("nonsense"), std::string("{}"), std::string(R"({"table": "records"})"),
        std::string(R"({"table": "passwords", "key": "a"})"), std::string(R"({"table": 3})"), std::string("[1]")}) {
    std::ofstream(folder_ / "bad.jsonl") << lines << bad << "\n";
    Database fresh(folder_ / "fresh.db", Access::write);
    const auto error = caught([&] { fresh.merge(folder_ / "bad.jsonl"); });
    EXPECT_EQ(error.code, ErrorCode::file) << bad;
    EXPECT_EQ(fresh.summary().records, 0) << bad;
  }
}

TEST_F(DatabaseTest, files_that_are_no_database_are_refused) {
  std::ofstream(folder_ / "text.db") << "these are no records, and longer than a header of SQLite's would be: "
                                     << std::string(200, 'x');
  EXPECT_EQ(caught([&] { Database(folder_ / "text.db", Access::read); }).code, ErrorCode::file);
  EXPECT_EQ(caught([&] { Database(folder_ / "missing.db", Access::read); }).code, ErrorCode::file);
  EXPECT_EQ(caught([&] { Database(folder_ / "no" / "folder.db", Access::write); }).code, ErrorCode::file);
  Connection(folder_ / "foreign.db", true).execute("CREATE TABLE other (a)");
  EXPECT_EQ(caught([&] { Database(folder_ / "foreign.db", Access::write); }).code, ErrorCode::file);
}

TEST_F(DatabaseTest, what_a_job_left_before_there_were_tables_is_empty_and_goes_on) {
  std::ofstream(folder_ / "a.db").flush();
  const auto error = caught([&] { Database(folder_ / "a.db", Access::read); });
  EXPECT_NE(error.text.find("this database is empty"), std::string::npos) << error.text;
  open("a.db").add(make_record("tile=6x2", 0.9));
  EXPECT_EQ(records_of(open("a.db", Access::read)).size(), 1u);
}

TEST_F(DatabaseTest, prune_removes_what_other_versions_left) {
  Database database = open("a.db");
  const std::string kept = database.add(make_record("tile=6x2", 0.8));
  Record old = make_record("tile=4x2", 0.8);
  old.compiler = "older";
  database.add({database.add(old), "model", 0.9, 1, 1});
  EXPECT_EQ(database.prune(1, "c0ffee"), 2);
  EXPECT_EQ(database.summary().records, 1);
  EXPECT_EQ(records_of(database)[0].digest, kept);
  EXPECT_TRUE(database.verify().empty());
}

}  // namespace
}  // namespace tw::autotune
