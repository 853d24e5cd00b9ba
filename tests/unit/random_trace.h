// Random legal schedules of small Funcs, and what they must compute: for the property tests of schedules and of
// lowering.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"
#include "schedule/tree.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"

namespace tw::test {

// Those that random traces apply, as often as they stand here.
inline const std::vector<std::string>& random_primitives() {
  // clang-format off
  static const std::vector<std::string> names = {
      "split", "split", "split", "fuse", "reorder", "reorder", "parallel", "vectorize", "unroll", "annotate",
      "pipeline", "pipeline", "bind", "compute_at", "compute_at", "compute_at", "reverse_compute_at",
      "reverse_compute_at", "reverse_compute_at", "compute_inline", "reverse_compute_inline", "cache_read",
      "cache_write", "cache_write", "set_scope", "transform_layout", "split_iteration", "pad", "pad_operands", "pad_terms",
      "fuse_iterations", "fuse_iterations",
      "decompose_reduction", "decompose_reduction", "skip_padding", "rfactor", "skip_masked", "skip_masked",
      "skip_masked"};
  // clang-format on
  return names;
}

// Small Funcs of every kind; extents are odd, prime or powers of two so that tails and exact tiles both happen.
inline std::vector<SampleFunc> trace_funcs() {
  std::vector<SampleFunc> funcs = {
      {"matmul", matmul(6, 8, 7)},
      {"matmul_odd", matmul(5, 11, 3, true, true)},
      {"matmul_epilogue", matmul_epilogue(7, 10, 4)},
      {"matmul_integer", matmul(4, 9, 5, false, false, i32)},
      {"conv_codes", narrow_conv(6, 4, 4, i8, i32, 1, 4)},
      {"batched_matmul", batched_matmul(2, 3, 5, 4, false)},
      {"conv", conv2d(2, 5, 5, 3, 1, 1)},
      {"conv_strided", conv2d(3, 4, 7, 3, 2, 1)},
      {"conv_dilated", conv2d(2, 5, 5, 3, 1, 3, 3)},
      {"conv_1x1", conv2d(4, 6, 3, 1, 1, 0)},
      {"depthwise", depthwise(5, 5, 3, 1, 1)},
      {"depthwise_strided", depthwise(3, 6, 3, 2, 1)},
      {"max_pool", max_pool(5, 6, 3, 2, 1)},
      {"global_average", global_average(6, 3)},
      {"softmax", softmax(3, 11)},
      {"layer_norm", layer_norm(4, 9)},
      {"attention", attention(2, 4, 3)},
      {"causal_softmax", causal_softmax(11)},
      {"causal_softmax_even", causal_softmax(8)},
      {"causal_softmax_late", causal_softmax(9, -3)},
      {"transpose", transpose(7, 6)},
      {"broadcast_add", broadcast_add(2, 3, 4)},
      {"row_sum", row_sum(5, 13)},
      {"gelu", gelu(3, 10)},
  };
  {  // a dimension that is known when it runs
    const Var m("m");
    const te::Tensor a = te::placeholder("A", {m, 6}), b = te::placeholder("B", {6, 5});
    const te::Tensor c =
        te::reduce("C", {m, 5}, {6}, te::Combiner::sum, {a, b},
                   [&](const te::Indices& s, const te::Indices& r) { return a({s[0], r[0]}) * b({r[0], s[1]}); });
    const te::Tensor d = te::compute("D", {m, 5}, {c}, [&](const te::Indices& s) { return c(s) + const_of(f32, 1); });
    funcs.push_back({"symbolic_rows", te::make_func("symbolic_rows", {a, b}, {d}, {m})});
  }
  {  // a window over rows of an elementwise stage: regions overlap
    const te::Tensor x = te::placeholder("X", {14});
    const te::Tensor y = te::compute("Y", {14}, {x}, [&](const te::Indices& s) { return x(s) * x(s); });
    const te::Tensor z =
        te::compute("Z", {11}, {y}, [&](const te::Indices& s) { return y({s[0]}) + y({s[0] + 3}) * y({s[0] + 1}); });
    const te::Tensor w = te::reduce("W", {4}, {5}, te::Combiner::max, {z},
                                    [&](const te::Indices& s, const te::Indices& r) { return z({s[0] * 2 + r[0]}); });
    funcs.push_back({"windows", te::make_func("windows", {x}, {w})});
  }
  return funcs;
}

inline int64_t value_of_parameter(const Var&) {
  return 7;
}

inline std::vector<int64_t> run_time_shape(const Func& f, const Buffer& buffer) {
  std::map<std::string, int64_t> values;
  for (const Var& v : f.parameters) values[v.name()] = value_of_parameter(v);
  std::vector<int64_t> shape;
  for (const Expr& extent : buffer->shape) shape.push_back(evaluate(extent, values).get_int(0));
  return shape;
}

inline std::vector<NDArray> trace_buffers(const Func& f, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<NDArray> result;
  for (const Buffer& buffer : f.buffers) {
    NDArray array(buffer->dtype, run_time_shape(f, buffer));
    for (int64_t i = 0; i < array.size(); ++i) {
      const int64_t value = static_cast<int64_t>(random() % 2001) - 1000;
      if (f.is_output(buffer)) {
        std::memset(array.data(), 0, array.byte_size());
        break;
      }
      if (buffer->dtype.is_float())
        array.set_float(i, static_cast<double>(value) / 1000);
      else
        array.set_int(i, value / 100);
    }
    result.push_back(array);
  }
  return result;
}

inline std::map<std::string, int64_t> trace_parameters(const Func& f) {
  std::map<std::string, int64_t> values;
  for (const Var& v : f.parameters) values[v.name()] = value_of_parameter(v);
  return values;
}

// A schedule that grew by random primitives, and the layouts that its parameters got on the way.
struct RandomSchedule {
  struct LayoutStep {
    size_t buffer;
    IndexMap map;
    Shape physical;
  };
  Schedule schedule;
  std::vector<LayoutStep> layouts;
  std::vector<std::string> applied, refused;  // names of primitives
};

// Whose schedule grows: workers of a CPU, or blocks and threads of a GPU.
enum class TraceKind { workers, threads };

class RandomTrace {
 public:
  RandomTrace(const Func& f, uint64_t seed, TraceKind kind = TraceKind::workers)
      : random_(seed), kind_(kind), result_{Schedule(f), {}, {}, {}} {}

  // Primitives that are not legal where they are tried leave the schedule as it is.
  RandomSchedule grow(int attempts) {
    for (int i = 0; i < attempts; ++i) step();
    return std::move(result_);
  }

 private:
  Schedule& s() { return result_.schedule; }
  size_t below(size_t n) { return n ? random_() % n : 0; }
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

  std::optional<LoopRef> any_loop(const BlockRef& block) {
    const auto loops = s().loops(block);
    if (loops.empty()) return std::nullopt;
    return pick(loops);
  }
  BlockRef any_block() { return pick(s().blocks()); }

  std::vector<Buffer> used_by(const BlockRef& block, bool written) {
    const Stmt body = s().node(block).body;
    return written ? buffers_written(body) : buffers_read(body);
  }
  // Another block that reads what this one writes (or writes what it reads).
  std::optional<BlockRef> neighbour(const BlockRef& block, bool after) {
    std::vector<BlockRef> found;
    for (const Buffer& b : used_by(block, after)) {
      for (const Block* other : after ? readers_of(s().func().body, b) : writers_of(s().func().body, b)) {
        if (other->name != block.name) found.push_back({other->name});
      }
    }
    if (found.empty()) return std::nullopt;
    return pick(found);
  }
  Scope any_scope() {
    if (kind_ == TraceKind::threads) return pick(std::vector<Scope>{Scope::global, Scope::shared, Scope::local});
    return pick(std::vector<Scope>{Scope::global, Scope::stack, Scope::register_});
  }
  // Outer loops to blocks, inner ones to threads.
  ThreadAxis any_axis(bool is_outer) {
    if (kind_ == TraceKind::workers) return ThreadAxis::block_x;
    if (is_outer && below(2)) return pick(std::vector<ThreadAxis>{ThreadAxis::block_x, ThreadAxis::block_y});
    return pick(std::vector<ThreadAxis>{ThreadAxis::thread_x, ThreadAxis::thread_x, ThreadAxis::thread_y});
  }

  void step() {
    const std::string name = pick(random_primitives());
    const size_t before = s().trace().instructions.size();
    try {
      apply(name);
      if (s().trace().instructions.size() > before) result_.applied.push_back(name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::schedule) throw;
      result_.refused.push_back(name);
    }
  }

  void apply(const std::string& name) {
    const BlockRef block = any_block();
    const auto loop = any_loop(block);
    if (name == "split" && loop) {
      std::vector<std::optional<int64_t>> factors{std::nullopt, pick(std::vector<int64_t>{2, 3, 4, 5, 8})};
      if (below(4) == 0) factors.push_back(2);
      if (below(6) == 0) factors = {pick(std::vector<int64_t>{2, 3, 4}), std::nullopt};
      if (below(6) == 0) factors[0] = 4, factors[1] = 4;
      s().split(*loop, factors);
    } else if (name == "fuse") {
      const auto loops = s().loops(block);
      if (loops.size() < 2) return;
      const size_t first = below(loops.size() - 1), count = loops.size() - first > 2 && below(3) == 0 ? 3 : 2;
      s().fuse({loops.begin() + static_cast<std::ptrdiff_t>(first),
                loops.begin() + static_cast<std::ptrdiff_t>(first + count)});
    } else if (name == "reorder") {
      auto loops = s().loops(block);
      std::shuffle(loops.begin(), loops.end(), random_);
      loops.resize(std::min(loops.size(), 2 + below(3)));
      s().reorder(loops);
    } else if (name == "parallel" && loop) {
      if (kind_ == TraceKind::workers) return s().parallel(*loop);
      s().bind(*loop, any_axis(*loop == s().loops(block).front()));
    } else if (name == "vectorize") {
      const auto loops = s().loops(block);
      if (!loops.empty()) s().vectorize(below(3) ? loops.back() : pick(loops));
    } else if (name == "unroll" && loop) {
      s().unroll(*loop);
    } else if (name == "pipeline" && loop) {
      // Rarely is there a copy already: one is made.
      if (below(3) && s().blocks().size() <= 8) {
        const auto buffers = used_by(block, false);
        if (buffers.empty()) return;
        const BlockRef copy = s().cache_read(block, pick(buffers)->name, any_scope());
        s().compute_at(copy, *loop);
      }
      s().pipeline(*loop, pick(std::vector<int64_t>{2, 2, 3, 4}));
    } else if (name == "bind") {
      if (!loop || (kind_ == TraceKind::workers && below(3) != 0)) return;
      s().bind(s().loops(block).front(), any_axis(true));
    } else if (name == "annotate") {
      if (loop && below(2))
        s().annotate(*loop, "hint", int64_t{3});
      else
        s().annotate(block, "note", std::string("a \"text\""));
    } else if (name == "compute_at") {
      const auto consumer = neighbour(block, true);
      if (!consumer) return;
      if (const auto at = any_loop(*consumer)) s().compute_at(block, *at);
    } else if (name == "reverse_compute_at") {
      const auto producer = neighbour(block, false);
      if (!producer) return;
      if (const auto at = any_loop(*producer)) s().reverse_compute_at(block, *at);
    } else if (name == "compute_inline") {
      if (below(2)) s().compute_inline(block);
    } else if (name == "reverse_compute_inline") {
      if (below(2)) s().reverse_compute_inline(block);
    } else if (name == "cache_read" || name == "cache_write") {
      if (s().blocks().size() > 8) return;
      const auto buffers = used_by(block, name == "cache_write");
      if (buffers.empty()) return;
      const std::string buffer = pick(buffers)->name;
      if (name == "cache_write")
        s().cache_write(block, buffer, any_scope());
      else
        s().cache_read(block, buffer, any_scope());
    } else if (name == "set_scope") {
      const auto buffers = used_by(block, true);
      if (!buffers.empty()) s().set_scope(buffers[0]->name, any_scope());
    } else if (name == "transform_layout") {
      const auto buffers = used_by(block, below(2) == 0);
      if (!buffers.empty()) transform(pick(buffers));
    } else if (name == "split_iteration") {
      const size_t rank = s().node(block).iters.size();
      if (rank > 0 && rank < 8)
        s().split_iteration(block, static_cast<int>(below(rank)), pick(std::vector<int64_t>{2, 3, 4}));
    } else if (name == "fuse_iterations") {
      s().fuse_iterations(block, random_groups(s().node(block).iters));
    } else if (name == "pad_terms") {
      pad_terms(block, pick(std::vector<int64_t>{2, 4, 8}));
    } else if (name == "pad" || name == "pad_operands") {
      std::vector<int64_t> multiples;
      for (size_t i = 0; i < s().node(block).iters.size(); ++i)
        multiples.push_back(pick(std::vector<int64_t>{1, 1, 2, 4}));
      if (name == "pad")
        s().pad(block, multiples);
      else
        s().pad_operands(block, multiples);
    } else if (name == "decompose_reduction" && loop) {
      s().decompose_reduction(block, *loop);
    } else if (name == "skip_padding" && loop) {
      if (s().node(block).init.is_defined()) s().decompose_reduction(block, s().loops(block).front());
      s().skip_padding(block, *loop);
    } else if (name == "skip_masked") {
      skip_masked();
    } else if (name == "rfactor" && loop) {
      s().rfactor(*loop, static_cast<int>(below(3)));
    }
  }

  // The loop around the block inside of this one.
  std::optional<LoopRef> next_loop(const BlockRef& block, const LoopRef& loop) {
    const std::vector<LoopRef> loops = s().loops(block);
    const auto at = std::find(loops.begin(), loops.end(), loop);
    return loops.end() - at > 1 ? std::optional(at[1]) : std::nullopt;
  }

  // All that uses masked scores comes into one of their loops, and its sums begin by themselves.
  void skip_masked() {
    const std::vector<BlockRef> blocks = s().blocks();
    const auto masked = std::ranges::find_if(blocks, [&](const BlockRef& block) { return s().is_masked(block); });
    if (masked == blocks.end() || s().loops(*masked).empty()) return;
    const LoopRef loop = s().loops(*masked).front();
    for (auto other = masked + 1; other != blocks.end(); ++other) {
      if (!next_loop(*other, loop)) s().reverse_compute_at(*other, loop);
      const auto own = next_loop(*other, loop);
      if (own && s().node(*other).init.is_defined()) s().decompose_reduction(*other, *own);
      const auto inner = below(3) == 0 ? std::optional(s().loops(*other).back()) : std::nullopt;
      if (!inner || !own || *inner == *own) continue;
      const std::vector<LoopRef> parts = s().split(*inner, {std::nullopt, pick(std::vector<int64_t>{2, 3, 4})});
      if (below(3) == 0) s().reorder({parts[1], parts[0]});
    }
    s().skip_masked(*masked, loop);
  }

  // Those of one kind together more often than not.
  std::vector<std::vector<int64_t>> random_groups(const std::vector<IterVar>& iters) {
    std::vector<int64_t> order(iters.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::vector<int64_t>> groups;
    for (const int64_t axis : order) {
      const auto kind = [&](int64_t a) { return iters[static_cast<size_t>(a)].kind; };
      const auto with =
          std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return kind(g[0]) == kind(axis); });
      if (with != groups.end() && below(3) != 0)
        with->push_back(axis);
      else
        groups.push_back({axis});
    }
    return groups;
  }

  // Zeros beside a constant along an iteration that is summed over, if there are both, and the iteration as long.
  void pad_terms(const BlockRef& block, int64_t multiple) {
    const std::vector<IterVar> iters = s().node(block).iters;
    std::vector<int64_t> multiples(iters.size(), 1);
    for (size_t i = 0; i < iters.size(); ++i) {
      const auto extent = as_int(iters[i].extent);
      if (iters[i].kind != IterKind::reduce || !extent || below(2) == 0) continue;
      visit(Stmt(s().node(block).body), [&](const Load& factor) {
        if (!factor.buffer->is_constant || multiples[i] > 1) return;
        const int64_t padded = (*extent + multiple - 1) / multiple * multiple;
        IndexMap map;
        for (int d = 0; d < factor.buffer.rank(); ++d) {
          const Var index("d" + std::to_string(d));
          const bool is_padded = factor.indices[static_cast<size_t>(d)].get() == iters[i].var.get();
          map.from.push_back(index);
          if (is_padded) map.to.push_back(floor_div(index, padded));
          map.to.push_back(is_padded ? floor_mod(index, padded) : Expr(index));
        }
        multiples[i] = multiple;
        if (map.to.size() > map.from.size()) transform(factor.buffer, map);
      });
    }
    s().pad_terms(block, multiples);
  }

  void transform(const Buffer& buffer) {
    if (buffer.rank() == 0 || buffer.rank() > 5) return;
    IndexMap map;
    for (int d = 0; d < buffer.rank(); ++d) map.from.push_back(Var("d" + std::to_string(d)));
    std::vector<Expr> to;
    const size_t blocked = below(map.from.size() + 1);
    const int64_t factor = pick(std::vector<int64_t>{2, 4, 3});
    for (size_t d = 0; d < map.from.size(); ++d)
      to.push_back(d == blocked ? floor_div(map.from[d], factor) : Expr(map.from[d]));
    if (blocked < map.from.size()) to.push_back(floor_mod(map.from[blocked], factor));
    if (below(2)) std::shuffle(to.begin(), to.end(), random_);
    map.to = to;
    transform(buffer, map);
  }
  void transform(const Buffer& buffer, const IndexMap& map) {
    s().transform_layout(buffer->name, map);
    const Func& f = s().func();
    for (size_t i = 0; i < f.buffers.size(); ++i) {
      if (f.buffers[i]->name == buffer->name) result_.layouts.push_back({i, map, run_time_shape(f, f.buffers[i])});
    }
  }

  std::mt19937_64 random_;
  TraceKind kind_;
  RandomSchedule result_;
};

// Arrays in the layouts of the scheduled Func.
inline std::vector<NDArray> in_layouts(const RandomSchedule& grown, const std::vector<NDArray>& logical) {
  std::vector<NDArray> arrays;
  for (const NDArray& array : logical) arrays.push_back(array.clone());
  for (const auto& step : grown.layouts)
    arrays[step.buffer] = apply_layout(arrays[step.buffer], step.map, step.physical);
  return arrays;
}

// 1 where an element is one of the logical array's, 0 in padding.
inline std::vector<NDArray> masks(const RandomSchedule& grown, const std::vector<NDArray>& logical) {
  std::vector<NDArray> ones;
  for (const NDArray& array : logical) {
    NDArray one(u8, array.shape());
    std::memset(one.data(), 1, one.byte_size());
    ones.push_back(one);
  }
  return in_layouts(grown, ones);
}

// Largest difference of the outputs, padding left out.
inline double output_difference(const Func& f, const RandomSchedule& grown, const std::vector<NDArray>& logical,
                                const std::vector<NDArray>& expected, const std::vector<NDArray>& got) {
  const auto mask = masks(grown, logical), wanted = in_layouts(grown, expected);
  double largest = 0;
  for (size_t i = f.buffers.size() - static_cast<size_t>(f.output_count); i < f.buffers.size(); ++i) {
    NDArray a = got[i].clone(), b = wanted[i].clone();
    for (int64_t k = 0; k < a.size(); ++k) {
      if (mask[i].get_int(k)) continue;
      if (a.dtype().is_float())
        a.set_float(k, 0), b.set_float(k, 0);
      else
        a.set_int(k, 0), b.set_int(k, 0);
    }
    largest = std::max(largest, largest_difference(a, b));
  }
  return largest;
}

inline int traces_to_run(int usual) {
  if (is_sanitized) usual /= 4;
  const char* wanted = std::getenv("TW_TRACES");  // a campaign: TW_TRACES=100000
  return wanted ? std::atoi(wanted) : usual;
}

inline uint64_t first_seed() {
  const char* wanted = std::getenv("TW_SEED");
  return wanted ? static_cast<uint64_t>(std::atoll(wanted)) : 1;
}

}  // namespace tw::test
