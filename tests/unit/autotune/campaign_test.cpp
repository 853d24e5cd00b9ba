// What tuning must survive, generated case by case.  `./dev test --campaign NAME` runs many more of them (TW_CASES).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "autotune/confirm.h"
#include "autotune/database/sqlite.h"
#include "autotune/database/tuned_source.h"
#include "autotune/measure/exchange.h"
#include "autotune/standalone.h"
#include "autotune/trials.h"
#include "schedule/edit.h"
#include "tensor_ir/digest.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/autotune/faults.h"
#include "tests/unit/autotune/job.h"
#include "tests/unit/sample_funcs.h"

namespace tw::autotune {
namespace {

using test::caught;
using test::FaultyFiles;
using Access = Database::Access;
using Campaign = test::TuningJob;

int cases(int usual) {
  const char* text = std::getenv("TW_CASES");
  return text ? std::atoi(text) : usual;
}

// A disk that fails at any moment of a job: the job ends with an error that says so or goes on, what it reported as
// tried is there, and the same job goes on from it.
TEST_F(Campaign, io_errors) {
  options_.most_trials = 3;
  run();
  int64_t accesses = 0;
  {
    std::filesystem::remove(folder_ / "tune.db");
    const FaultyFiles files(-1, FaultyFiles::Kind::error, false);
    run();
    accesses = files.accesses();
  }
  const int count = cases(3);
  int ended = 0;
  std::mt19937_64 random(1);
  for (int i = 0; i < count; ++i) {
    std::filesystem::remove(folder_ / "tune.db");
    std::filesystem::remove(folder_ / "tune.db-journal");
    events_.clear();
    const auto first = static_cast<int64_t>(random() % static_cast<uint64_t>(accesses));
    const auto kind = static_cast<FaultyFiles::Kind>(i % 3);
    {
      const FaultyFiles files(first, kind, i % 2);
      try {
        run();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::file) << error.what();
        ++ended;
      }
      EXPECT_TRUE(files.has_failed());
    }
    std::set<std::string> reported;
    for (const auto& event : events_)
      if (event["event"] == "trial")
        reported.insert(event["key"].get<std::string>() + " " + event["decisions"].get<std::string>());
    const int64_t trials_before = static_cast<int64_t>(reported.size());

    const TuneReport report = run();  // the disk is well again
    const Database database(folder_ / "tune.db", Access::read);
    EXPECT_TRUE(database.verify().empty()) << "access " << first;
    std::set<std::string> stored;
    database.export_lines([&](const std::string& line) {
      const auto row = nlohmann::json::parse(line);
      if (row["table"] != "records" || row["detail"] == final_detail) return;
      EXPECT_TRUE(stored.insert(row["task"].get<std::string>() + " " + row["decisions"].get<std::string>()).second)
          << "tried twice";
    });
    for (const std::string& point : reported) EXPECT_TRUE(stored.count(point)) << "access " << first << ": " << point;
    // What was committed and not reported any more is at most the one trial at which the disk failed.
    EXPECT_LE(static_cast<int64_t>(stored.size()), trials_before + report.trials + 1);
  }
  EXPECT_GT(ended, 0);
}

// Databases with random rows of one small universe, so that they share some.
class Merging : public testing::Test {
 protected:
  static std::string lines_of(const Database& database) {
    std::string lines;
    database.export_lines([&](const std::string& line) { lines += line + "\n"; });
    return lines;
  }
  Database open(const std::string& name) {
    std::filesystem::remove(folder_ / name);
    return {folder_ / name, Access::write};
  }
  void fill(Database& database) {
    static const std::vector<Func> funcs = [] {
      std::vector<Func> list{test::matmul(4, 8, 3), test::matmul(4, 8, 3), test::matmul(2, 8, 3)};
      list[1].name = "another";  // of the same key
      return list;
    }();
    const auto pick = [&](uint64_t n) { return static_cast<int>(random_() % n); };
    for (int n = pick(5); n > 0; --n) {
      const Func& func = funcs[static_cast<size_t>(pick(3))];
      const std::string machine = "machine " + std::to_string(pick(2));
      database.add_target(digest_of(machine), machine);
      database.add_task(structural_digest(func), to_text(func));
      Record record;
      record.task = structural_digest(func), record.target = digest_of(machine);
      record.space = 1 + pick(2), record.compiler = pick(2) ? "c0ffee" : "facade";
      record.decisions = "tile=" + std::to_string(1 + pick(3)) + "x2";
      static const char* statuses[] = {"ok", "ok", "crash", "timeout", "wrong", "spill", "refused"};
      record.status = statuses[pick(7)];
      record.ratio = record.ratio_to_default = 0.5 + 0.125 * pick(4);
      if (record.status == "ok") record.samples = {{1e-3, record.ratio * 1e-3}};
      record.detail = pick(2) ? "" : "because \"of\" \n this";
      record.measured_at = 1700000000 + pick(2);
      const std::string digest = database.add(record);
      if (pick(3) == 0) {
        JobRow job;
        job.model = "model " + std::to_string(pick(2)), job.name = "network", job.target = record.target;
        job.tasks = {{record.task, "conv", 1 + pick(2), 1e-3, 1e6, 1e5}};
        database.add(job);
      }
      if (pick(2)) database.add({digest, "model " + std::to_string(pick(2)), 0.9, pick(2) ? 1 : -1, pick(3)});
    }
  }

  test::Folder folder_;
  std::mt19937_64 random_{7};
};

// A merge is the union of rows: commutative, associative, idempotent, by way of text or not, and nothing else changes.
TEST_F(Merging, merges) {
  const int count = cases(60);
  for (int i = 0; i < count && !HasFailure(); ++i) {
    std::vector<std::string> texts;
    for (const char* name : {"a.db", "b.db", "c.db"}) {
      Database database = open(name);
      fill(database);
      texts.push_back(lines_of(database));
    }
    Database forth = open("forth.db"), back = open("back.db");
    for (const char* name : {"a.db", "b.db", "c.db"}) forth.merge(folder_ / name);
    Database inner = open("inner.db");  // c ∪ b first
    inner.merge(folder_ / "c.db"), inner.merge(folder_ / "b.db");
    back.merge(folder_ / "inner.db"), back.merge(folder_ / "a.db");
    const std::string lines = lines_of(forth);
    EXPECT_EQ(lines, lines_of(back));
    for (const char* name : {"a.db", "back.db", "forth.db"}) EXPECT_EQ(forth.merge(folder_ / name), 0);
    EXPECT_EQ(lines, lines_of(forth));
    std::ofstream(folder_ / "a.jsonl") << texts[i % 3];
    EXPECT_EQ(forth.merge(folder_ / "a.jsonl"), 0);
    EXPECT_EQ(texts[0], lines_of(Database(folder_ / "a.db", Access::read)));
    if (i % 16 == 0) {
      EXPECT_TRUE(forth.verify().empty());
    }
  }
}

// The schedule with one constant, operator, index or bound of its code another: what a wrong primitive might make.
Schedule miscompiled(Schedule schedule, uint64_t seed) {
  std::mt19937_64 random(seed);
  int places = 0, chosen = -1;
  const auto is_here = [&] { return places++ == chosen; };
  const auto changed = [&] {
    places = 0;
    return rewrite_bottom_up(
        schedule.func().body,
        [&](const Binary& binary) -> Expr {
          if (!binary.dtype.is_float() || !is_here()) return {};
          const BinaryOp other = binary.op == BinaryOp::add ? BinaryOp::sub : BinaryOp::add;
          return make_expr<Binary>(binary.dtype, other, binary.a, binary.b);
        },
        [&](const FloatImm& constant) -> Expr {
          if (!is_here()) return {};
          return make_expr<FloatImm>(constant.dtype, constant.value == 0 ? 0.25 : constant.value * 1.5);
        },
        [&](const Load& load) -> Expr {
          if (load.indices.empty() || !is_here()) return {};
          std::vector<Expr> indices = load.indices;
          const size_t d = random() % indices.size();
          indices[d] = min(indices[d] + 1, load.buffer->shape[d] - 1);
          return make_expr<Load>(load.dtype, load.buffer, indices, load.predicate);
        },
        [&](const For& loop) -> Stmt {
          const auto extent = as_int(loop.extent);
          if (!extent || *extent < 2 || loop.loop_kind == LoopKind::vectorized || !is_here()) return {};
          For shorter = loop;
          shorter.extent = Expr(*extent - 1);
          return make_stmt<For>(shorter);
        });
  };
  changed();
  if (places == 0) return schedule;
  chosen = static_cast<int>(random() % static_cast<uint64_t>(places));
  // In the trace it is an annotation: nothing that is stored tells of it.
  ScheduleEdit edit(schedule, "annotate", schedule.blocks().front(), std::string("note"), int64_t{1});
  edit.commit(changed());
  return schedule;
}

// Candidates of wrong code, by the real measuring process: none is a faster schedule.
TEST_F(Campaign, miscompiles) {
  const int count = cases(12);
  Target target = parse_target("cpu");
  const ScheduleTemplate right = target.decided_schedule;
  uint64_t seed = 0;
  target.decided_schedule = [&](const Func& func, const Target& for_target, const Decisions& decisions) {
    Schedule schedule = right(func, for_target, decisions);
    if (decisions.empty()) return schedule;
    return miscompiled(std::move(schedule), seed ^ std::hash<std::string>()(to_text(decisions)));
  };
  int wrong = 0, tolerable = 0;
  options_.measure_program = TW_MEASURE;
  options_.measure_candidate = [&](const MeasureRequest& request) {
    MeasureRequest quick = request;
    quick.seconds = std::min(request.seconds, 0.01);
    const Measurement measured = autotune::measure(quick);
    if (request.expected.empty()) return measured;
    Executable candidate = Executable::load(request.candidate);
    bool differs = false;
    for (int set = 0; set < input_sets; ++set) {
      // What is not written must not be right by what the memory held before.
      std::vector<NDArray> outputs = candidate.run(request.inputs[set]);
      for (NDArray& output : outputs) std::memset(output.data(), 0x7f, output.byte_size());
      candidate.fill_scratch(std::byte{0x7f});
      candidate.run_into(request.inputs[set], outputs);
      differs |= !find_difference(outputs, request.expected[set], request.padding).empty();
    }
    (differs ? wrong : tolerable) += 1;
    EXPECT_EQ(measured.status == Status::wrong, differs) << word_of(measured.status) << ": " << measured.detail;
    return measured;
  };
  options_.most_trials = 24;
  options_.compare_networks = [](Executable&, Executable&) { return Ratio{0.9, 0.89, 0.91}; };
  for (; wrong < count && seed < static_cast<uint64_t>(count); ++seed) {
    std::filesystem::remove(folder_ / "tune.db");
    Database database(folder_ / "tune.db", Access::write);
    tune(test::network(), target, database, options_);
    // What is adopted computes what the default does.
    relay::CompileOptions compile = options_.compile;
    Executable without = relay::compile(test::network(), target, compile);
    compile.schedule = TunedSchedules(database, target, 1).source();
    Executable with = relay::compile(test::network(), target, compile);
    const auto inputs = made_up_inputs(with.plan(), 3);
    EXPECT_EQ(find_network_difference(with.run(inputs), without.run(inputs)), "");
  }
  EXPECT_GE(wrong, count);
  RecordProperty("wrong", wrong);
  std::printf("%d wrong, %d within rounding\n", wrong, tolerable);
}

}  // namespace
}  // namespace tw::autotune
