// Every point of every sample's space is a schedule that computes the same, and the order is the same each time.
#include "autotune/search/space.h"

#include <gtest/gtest.h>

#include "autotune/database/database.h"
#include "autotune/database/tuned_source.h"
#include "autotune/measure/exchange.h"
#include "autotune/standalone.h"
#include "autotune/task.h"
#include "relay_ir/compile/group.h"
#include "relay_ir/compile/layout.h"
#include "relay_ir/cost.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/autotune/points.h"
#include "tests/unit/runtime/test_model.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/targets/run.h"

namespace tw::autotune {
namespace {

Target core(int vector_bits, int registers) {
  Target target = parse_target(vector_bits == 512 ? "x86:avx512" : "x86:avx2");
  target.vector_bits = vector_bits;
  target.vector_registers = registers;
  target.threads = 2;
  return target;
}

std::vector<Point> points_of(const Func& func, const Target& target, size_t most, uint64_t seed = 0) {
  const Space space(func, target);
  test::Points enumeration(space, seed);
  std::vector<Point> points;
  while (points.size() < most) {
    auto point = enumeration.next();
    if (!point) break;
    points.push_back(std::move(*point));
  }
  return points;
}

TEST(SpaceOfTemplates, begins_with_the_default_and_has_each_schedule_once) {
  const Target target = core(512, 32);
  for (const test::SampleFunc& sample : test::sample_funcs()) {
    const auto points = points_of(sample.func, target, 40);
    ASSERT_FALSE(points.empty()) << sample.name;
    EXPECT_TRUE(points[0].decisions.empty());
    EXPECT_EQ(points[0].trace, to_text(target.default_schedule(sample.func, target).trace()));
    std::set<std::string> traces, decisions;
    for (const Point& point : points) {
      EXPECT_TRUE(traces.insert(point.trace).second);
      EXPECT_TRUE(decisions.insert(to_text(point.decisions)).second);
      EXPECT_GT(point.cost, 0);
    }
  }
}

TEST(SpaceOfTemplates, is_the_same_for_the_same_seed) {
  const Func func = test::conv2d(32, 32, 14, 3, 1, 1);
  const auto texts = [&](uint64_t seed) {
    std::vector<std::string> result;
    for (const Point& point : points_of(func, core(256, 16), 30, seed)) result.push_back(to_text(point.decisions));
    return result;
  };
  EXPECT_EQ(texts(1), texts(1));
  EXPECT_NE(texts(1), texts(2));
}

// A convolution by Winograd's filtering with tiles of 2 × 2: the transformed weights are any.
Func winograd(int64_t inputs, int64_t outputs, int64_t size) {
  relay::Graph graph;
  graph.inputs = {graph.add_value("x", relay::TensorType{f32, {Expr(1), Expr(inputs), Expr(size), Expr(size)}})};
  relay::NodeAttributes attributes;
  attributes.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  attributes.set("tile", int64_t{2});
  const relay::ValueId weight = graph.add_constant("w", NDArray(f32, {16, inputs, outputs}));
  graph.outputs = graph.add_node("winograd_conv", {graph.inputs[0], weight}, attributes, "c");
  return relay::lower_group(graph, relay::fuse(graph).at(0));
}

Func strassen(int64_t rows, int64_t inputs, int64_t outputs) {
  relay::Graph graph;
  graph.inputs = {graph.add_value("x", relay::TensorType{f32, {Expr(1), Expr(rows), Expr(inputs)}})};
  const relay::ValueId weight = graph.add_constant("w", NDArray(f32, {7, inputs / 2, outputs / 2})),
                       scale = graph.add_constant("s", NDArray(f32, {outputs}));
  graph.outputs = graph.add_node("strassen_product", {graph.inputs[0], weight, scale}, {}, "c");
  return relay::lower_group(graph, relay::fuse(graph).at(0));
}

// Scores and weights of `queries` a head, of 12 keys more; `causal`: of which the first sees so many, 0 for all.
Func attention(int64_t heads, int64_t queries, int64_t size, int64_t causal = 0) {
  relay::Graph graph;
  const auto input = [&](const char* name, int64_t rows) {
    return graph.add_value(name, relay::TensorType{f32, {Expr(heads), Expr(rows), Expr(size)}});
  };
  graph.inputs = {input("q", queries), input("k", queries + 12), input("v", queries + 12)};
  relay::NodeAttributes attributes;
  attributes.set("causal", causal);
  graph.outputs = graph.add_node("attention", graph.inputs, attributes, "a");
  return relay::lower_group(graph, relay::fuse(graph).at(0));
}

// Samples that leave something open which others do not.
std::vector<test::SampleFunc> samples_of_decisions() {
  std::vector<test::SampleFunc> samples = test::sample_funcs();
  samples.push_back({"panels", test::matmul(48, 96, 64, false, true)});
  samples.push_back({"image", test::narrow_conv(32, 48, 8, f32, f32)});
  samples.push_back({"winograd", winograd(16, 32, 10)});
  samples.push_back({"strassen", strassen(37, 32, 64)});
  samples.push_back({"rows", test::softmax(4, 272)});
  samples.push_back({"scores", attention(2, 19, 24)});
  samples.push_back({"scores of a prompt", attention(2, 37, 8, 5)});
  return samples;
}

// With caches that small samples fill.
Target small_core() {
  Target target = core(512, 32);
  target.l1.bytes = 4 << 10, target.l2.bytes = 16 << 10;
  return target;
}

TEST(SpaceOfTemplates, offers_what_the_templates_name) {
  const Target target = small_core();
  std::set<std::string> names;
  std::vector<test::SampleFunc> samples = samples_of_decisions();
  samples.push_back({"long", test::gelu(1, 1 << 16)});
  samples.push_back({"large", test::gelu(1 << 13, 1 << 13)});
  for (const test::SampleFunc& sample : samples) {
    const Schedule schedule = target.default_schedule(sample.func, target);
    for (const AskedDecision& asked : schedule.asked())
      if (asked.candidates.size() > 1) names.insert(asked.name);
  }
  for (const char* name : {"tile", "row_a_task", "vectors_a_task", "rows", "row_blocks", "k_unroll", "panel_prefetch",
                           "row_prefetch", "streams", "window_unroll", "strip", "bilinear_block", "attention_tile"})
    EXPECT_TRUE(names.count(name)) << name;
}

TEST(SpaceOfTemplates, of_gpus_offers_what_they_name) {
  const Target target = parse_target("cuda:sm_90");
  std::set<std::string> names;
  for (const Func& func : {test::matmul(64, 64, 64), test::narrow_matmul(1, 2048, 64, 256, bf16, bf16, f32, f32, false),
                           test::softmax(400, 272), test::column_sum(1, 300, 64)}) {
    const Schedule schedule = target.default_schedule(func, target);
    for (const AskedDecision& asked : schedule.asked())
      if (asked.candidates.size() > 1) names.insert(asked.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"copying_warp", "k_piece", "multiplier", "parts", "row_tile", "rows_in_turn",
                                          "slices", "stages", "thread_tile", "tile_copies", "warp_tile"}));
}

// Every decision alone, with one or two of its values, and points that decide several: fewer where the oracle takes
// long.
std::vector<Decisions> points_of_each_decision(const Func& func, const Target& target) {
  const bool is_long = as_int(relay::flops_of(func)).value_or(0) > 500000;
  std::vector<Decisions> result;
  const Schedule by_default = target.default_schedule(func, target);
  for (const AskedDecision& asked : by_default.asked()) {
    std::vector<Choice> others;
    for (size_t c = 0; c < asked.candidates.size(); ++c)
      if (c != asked.analytic) others.push_back(asked.candidates[c].value);
    if (!others.empty()) result.push_back({{asked.name, others.front()}});
    if (others.size() > 1 && !is_long) result.push_back({{asked.name, others.back()}});
  }
  const auto points = points_of(func, target, 24, 7);
  for (size_t p = 7; p < points.size(); p += is_long ? 16 : 8) result.push_back(points[p].decisions);
  return result;
}

// The property that makes tuning safe: whatever is decided, the schedule means the same.
TEST(SpaceOfTemplates, every_point_computes_the_same) {
  std::vector<Target> cores{small_core()};
  if (!test::is_sanitized) cores.push_back(core(256, 16));
  cores.push_back(parse_target("cuda:sm_90"));
  std::vector<test::SampleFunc> samples = samples_of_decisions();
  samples.push_back({"bf16", test::narrow_matmul(1, 70, 48, 64, bf16, bf16, f32, f32, false)});
  samples.push_back({"bf16 parts", test::narrow_matmul(1, 20, 24, 256, bf16, bf16, f32, f32, false)});
  for (const Target& target : cores) {
    for (const test::SampleFunc& sample : samples) {
      const std::vector<NDArray> original = test::random_buffers(sample.func, 1);
      std::vector<NDArray> expected;
      for (const NDArray& array : original) expected.push_back(array.clone());
      interpret(sample.func, expected);
      const std::vector<Decisions> points = points_of_each_decision(sample.func, target);
      for (size_t p = 0; p < points.size(); p += test::is_sanitized ? 8 : 1) {
        const Decisions& decisions = points[p];
        const Schedule schedule = target.decided_schedule(sample.func, target, decisions);
        std::vector<NDArray> arrays;
        for (size_t i = 0; i < original.size(); ++i) {
          NDArray array = original[i].clone();
          for (const IndexMap& map : schedule.layout_changes(sample.func.buffers[i]->name))
            array = relay::pack_array(array, map);
          arrays.push_back(array);
        }
        // What threads of a GPU have of their own is known when they are apart.
        if (target.compute_capability > 0)
          test::interpret_kernels(lower(schedule.func(), target, "kernel"), schedule.func(), arrays);
        else
          interpret(schedule.func(), arrays);
        for (size_t i = 0; i < arrays.size(); ++i) {
          if (!sample.func.is_output(sample.func.buffers[i])) continue;
          EXPECT_LT(test::largest_difference(arrays[i], expected[i]), arrays[i].dtype().bits == 16 ? 0.1 : 1e-3)
              << sample.name << " on " << target.name << " of " << target.vector_bits << " bits with "
              << to_text(decisions);
        }
      }
    }
  }
}

TEST(SpaceOfTemplates, traces_replay) {
  const Target target = core(512, 32);
  for (const Func& func : {test::matmul(37, 48, 29), test::depthwise(32, 14, 3, 1, 1)}) {
    for (const Point& point : points_of(func, target, 12)) {
      const Schedule decided = target.decided_schedule(func, target, point.decisions);
      EXPECT_EQ(to_text(replay(parse_trace(point.trace), func).func()), to_text(decided.func()));
    }
  }
}

TEST(Tasks, have_one_key_whatever_their_names) {
  Func renamed = test::matmul(8, 8, 8);
  renamed.name = "other";
  EXPECT_EQ(task_key(renamed), task_key(test::matmul(8, 8, 8)));
  EXPECT_NE(task_key(test::matmul(8, 8, 9)), task_key(test::matmul(8, 8, 8)));
  EXPECT_EQ(task_key(test::matmul(8, 8, 8)).size(), 32u);
}

TEST(Tasks, targets_differ_by_every_fact) {
  const Target base = parse_target("x86:avx512");
  std::set<std::string> keys{target_key(base, 2), target_key(base, 1)};
  const auto add = [&](auto&& change) {
    Target other = base;
    change(other);
    EXPECT_TRUE(keys.insert(target_key(other, 2)).second);
  };
  add([](Target& t) { t.l2.bytes *= 2; });
  add([](Target& t) { t.l1.ways *= 2; });
  add([](Target& t) { t.l3.rate *= 2; });
  add([](Target& t) { t.core_memory_rate *= 2; });
  add([](Target& t) { t.tiles.load_cycles += 1; });
  add([](Target& t) { t.fma_ports = 1; });
  add([](Target& t) { t.threads += 1; });
  add([](Target& t) { t.own_template = "mine"; });
  add([](Target& t) { t.features.push_back("avx512bf16"); });
  for (const char* name : {"x86:avx2", "x86:sse4", "aarch64", "rpi4"})
    EXPECT_TRUE(keys.insert(target_key(parse_target(name), 2)).second);
  Target renamed = base;
  renamed.name = "mine";
  std::reverse(renamed.features.begin(), renamed.features.end());
  EXPECT_TRUE(keys.count(target_key(renamed, 2)));
  // GPUs by their capability, whatever their host.
  const Target gpu = parse_target("cuda:sm_90");
  EXPECT_TRUE(keys.insert(target_key(gpu, 2)).second);
  EXPECT_EQ(target_key(gpu, 2), target_key(gpu, 16));
  EXPECT_NE(target_key(gpu, 2), target_key(parse_target("cuda:sm_80"), 2));
}

Record record_for(const Func& func, const Point& point) {
  Record record;
  record.task = task_key(func);
  record.decisions = to_text(point.decisions);
  record.trace = point.trace;
  return record;
}

TEST(TunedSource, uses_records_of_this_task_only) {
  const Target target = core(512, 32);
  const Func func = test::matmul(64, 64, 64), other = test::matmul(65, 64, 64);
  const Point point = points_of(func, target, 2).at(1);
  const TunedSchedules tuned({record_for(func, point)});
  EXPECT_EQ(to_text(tuned(func, target).trace()), point.trace);
  EXPECT_EQ(to_text(tuned(other, target).trace()), to_text(target.default_schedule(other, target).trace()));
  ASSERT_EQ(tuned.uses().size(), 1u);
  EXPECT_EQ(tuned.uses().begin()->second, TunedSchedules::Use::record);
}

TEST(TunedSource, stale_records_are_not_used) {
  const Target target = core(512, 32);
  const Func func = test::matmul(64, 64, 64);
  const Point point = points_of(func, target, 2).at(1);
  const std::string by_default = to_text(target.default_schedule(func, target).trace());
  Record unasked = record_for(func, point), impossible = unasked, changed = unasked, garbled = unasked;
  unasked.decisions += " zeal=3";
  impossible.decisions = "tile=1000x1000";
  changed.trace += "\nunroll(x)";
  garbled.decisions = "tile=";
  for (const Record& stale : {unasked, impossible, changed, garbled}) {
    const TunedSchedules tuned({stale});
    EXPECT_EQ(to_text(tuned(func, target).trace()), by_default) << stale.decisions;
    EXPECT_EQ(tuned.uses().at(stale.task), TunedSchedules::Use::stale) << stale.decisions;
  }
}

TEST(TunedSource, records_of_another_build_are_stale) {
  const Target target = core(512, 32);
  const Func func = test::matmul(64, 64, 64), other = test::matmul(65, 64, 64);
  const Point point = points_of(func, target, 2).at(1);
  Record record = record_for(func, point);
  record.target = target_key(target, 2), record.space = space_version, record.compiler = "older";
  record.status = "ok", record.samples = {{1e-3, 0.8e-3}};
  record.ratio = record.ratio_to_default = record.ratio_low = record.ratio_high = 0.8;
  const test::Folder folder;
  Database database(folder / "tune.db", Database::Access::write);
  database.add_target(record.target, target_facts(target, 2));
  database.add_task(record.task, to_text(func));
  database.add({database.add(record), "model", 0.9, 1, 1});
  const TunedSchedules tuned(database, target, 2);
  for (const Func& f : {func, other})
    EXPECT_EQ(to_text(tuned(f, target).trace()), to_text(target.default_schedule(f, target).trace()));
  EXPECT_EQ(tuned.uses(), (std::map<std::string, TunedSchedules::Use>{{record.task, TunedSchedules::Use::stale}}));
  EXPECT_TRUE(TunedSchedules(database, target, 1).uses().empty());
}

// As a kernel leaves the last lanes of blocks that its channels do not fill.
TEST(Candidates, padding_is_not_compared) {
  const auto filled = [](std::byte poison, int64_t first_lane, const std::vector<int64_t>& rows) {
    NDArray array(f32, {2, 3, 4});
    for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, static_cast<double>(i));
    for (const int64_t row : rows)
      for (int64_t lane = first_lane; lane < 4; ++lane)
        std::memset(array.as<float>() + row * 4 + lane, std::to_integer<int>(poison), sizeof(float));
    return array;
  };
  const std::vector<int64_t> last_block = {3, 4, 5};
  const NDArray ours = filled(candidate_poison, 1, last_block), theirs = filled(incumbent_poison, 1, last_block);
  EXPECT_NE(find_difference({ours}, {theirs}), "");
  const Padding padding = padding_of({ours}, {theirs});
  EXPECT_EQ(find_difference({ours}, {theirs}, padding), "");
  NDArray other = filled(candidate_poison, 4, {});  // which writes everything
  EXPECT_EQ(find_difference({other}, {theirs}, padding), "");
  other.set_float(12, 99);  // a lane that is read
  EXPECT_NE(find_difference({other}, {theirs}, padding), "");
  NDArray forgets = filled(candidate_poison, 0, {3});  // a row that is to be written
  EXPECT_NE(find_difference({forgets}, {theirs}, padding), "");
  // Whole rows, or as many lanes as differ from row to row, are no padding: nobody has written what he should.
  for (const auto& [first, rows] : {std::pair<int64_t, std::vector<int64_t>>{0, {3}}, {0, {0, 1, 2, 3, 4, 5}}}) {
    const NDArray a = filled(candidate_poison, first, rows), b = filled(incumbent_poison, first, rows);
    EXPECT_NE(find_difference({a}, {b}, padding_of({a}, {b})), "");
  }
  NDArray a = filled(candidate_poison, 1, {3}), b = filled(incumbent_poison, 1, {3});
  std::memset(a.as<float>() + 19, 0x7f, 4), std::memset(b.as<float>() + 19, 0x5a, 4);  // one lane of another row
  EXPECT_NE(find_difference({a}, {b}, padding_of({a}, {b})), "");
}

TEST(Candidates, differences_beyond_rounding_are_found) {
  NDArray a(f32, {2}), b(f32, {2});
  const auto set = [](NDArray& array, double x, double y) { array.set_float(0, x), array.set_float(1, y); };
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  set(a, 1, 1000), set(b, 1.05, 1000);
  EXPECT_EQ(find_difference({a}, {b}), "");  // small beside the largest
  set(b, 2, 1000);
  EXPECT_NE(find_difference({a}, {b}), "");
  set(a, nan, inf), set(b, nan, inf);
  EXPECT_EQ(find_difference({a}, {b}), "");
  set(b, 1, inf);
  EXPECT_NE(find_difference({a}, {b}), "");
  set(a, 0, 0), set(b, 0, 1e-30);
  EXPECT_NE(find_difference({a}, {b}), "");
}

}  // namespace
}  // namespace tw::autotune
