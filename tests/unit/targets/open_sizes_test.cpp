// The CPU's default schedules of Funcs whose sizes are known only when they run, by the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "targets/cpu/default_schedule.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/skip_iterations.h"
#include "tensor_ir/te.h"
#include "tests/unit/targets/cores.h"
#include "tests/unit/targets/same_meaning.h"

namespace tw::test {
namespace {

// Rows of any number: positions side by side, whose rest has code of its own, and blocks of tiles that stay near.
TEST(OpenSizes, RowsAreTilesOfSeveral) {
  const auto unrolled = [](const Func& func, const Target& target) {
    int64_t most = 1;
    visit(cpu::default_schedule(func, target).func().body, [&](const For& loop) {
      if (loop.loop_kind == LoopKind::unrolled) most = std::max(most, as_int(loop.extent).value_or(1));
    });
    return most;
  };
  const Var n("n");
  const auto image = te::placeholder("X", {1, 16, n + 2, 8}), filter = te::placeholder("W", {128, 3});
  const auto depthwise = te::reduce("Y", {1, 16, n, 8}, {3}, te::Combiner::sum, {image, filter},
                                    [&](const te::Indices& s, const te::Indices& r) {
                                      return image({s[0], s[1], s[2] + r[0], s[3]}) * filter({s[1] * 8 + s[3], r[0]});
                                    });
  const auto rows = te::placeholder("A", {n, 16}), weights = te::placeholder("B", {16, 512});
  const auto product = te::reduce(
      "C", {n, 512}, {16}, te::Combiner::sum, {rows, weights},
      [&](const te::Indices& s, const te::Indices& r) { return rows({s[0], r[0]}) * weights({r[0], s[1]}); });
  Func window = te::make_func("window", {image, filter}, {depthwise}, {n});
  Func matmul = te::make_func("matmul", {rows, weights}, {product}, {n});
  mark_constant(window, "W"), mark_constant(matmul, "B");
  for (const Target& target : cores()) {
    EXPECT_GE(unrolled(window, target), 4) << target.name;
    int blocks = 0;
    visit(cpu::default_schedule(matmul, target).func().body,
          [&](const For& loop) { blocks += loop.attributes.count(skip_iterations_attribute) != 0; });
    EXPECT_EQ(blocks, 1) << target.name;
    for (const int64_t size : {1, 7, 29, 101})
      for (const Func& func : {window, matmul}) expect_same_meaning_at(func, target, {{n, size}});
  }
}

// A task pads its own strip of rows, of any number and length.
TEST(OpenSizes, MapsArePaddedInStrips) {
  const Var h = dimension("h", {1, 64}, "", 28), w = dimension("w", {1, 64}, "", 28);
  const auto image = te::placeholder("X", {1, 64, h, w}), filter = te::placeholder("W", {64, 3, 3});
  const auto padded = te::compute("P", {1, 64, h + 2, w + 2}, {image}, [&](const te::Indices& s) {
    const Expr y = s[2] - 1, x = s[3] - 1, inside = y >= 0 && y < h && x >= 0 && x < w;
    return select(inside, load(image.buffer(), {s[0], s[1], y, x}, inside), const_of(f32, 0));
  });
  const auto sum = te::reduce("Y", {1, 64, h, w}, {3, 3}, te::Combiner::sum, {padded, filter},
                              [&](const te::Indices& s, const te::Indices& r) {
                                return padded({s[0], s[1], s[2] + r[0], s[3] + r[1]}) * filter({s[1], r[0], r[1]});
                              });
  Func func = te::make_func("depthwise", {image, filter}, {sum}, {h, w});
  mark_constant(func, "W");
  Schedule blocked(func);
  const Var n("n"), c("c"), y("y"), x("x");
  for (const char* map : {"X", "Y"})
    blocked.transform_layout(map, {{n, c, y, x}, {n, floor_div(c, 16), y, x, floor_mod(c, 16)}});
  const Func depthwise = blocked.func();
  for (const Target& target : cores()) {
    bool is_in_task = false;
    visit(cpu::default_schedule(depthwise, target).func().body, [&](const For& task) {
      if (task.loop_kind != LoopKind::parallel) return;
      visit(task.body, [&](const Allocate& a) { is_in_task |= a.buffer->name == "P"; });
    });
    EXPECT_EQ(is_in_task, target.lanes(f32) > 1) << target.name;
    for (const auto& [height, width] : {std::pair{1, 1}, {3, 9}, {8, 14}, {17, 33}})
      expect_same_meaning_at(depthwise, target, {{h, height}, {w, width}});
  }
}

AskedDecision asked(const Func& func, const char* name, const Target& target) {
  const Schedule schedule = cpu::default_schedule(func, target);
  const auto found = std::ranges::find(schedule.asked(), name, &AskedDecision::name);
  check(found != schedule.asked().end(), "the schedule asks for this decision");
  return *found;
}

// All candidates; under the sanitizers, which are slow, that which is chosen.
std::vector<Candidate> worth_trying(const AskedDecision& decision) {
  std::vector<Candidate> candidates = decision.candidates;
  if (is_sanitized) std::erase_if(candidates, [&](const Candidate& c) { return c.value != decision.value(); });
  return candidates;
}

// Few rows, of a map that is open: one tile has all that are usual, and its registers are in use.
TEST(OpenSizes, TilesSuitTheUsualNumberOfRows) {
  Target target = core(512, 32);
  target.l2.bytes = 1 << 20, target.l2.rate = 48, target.l3.rate = 12, target.load_ports = target.fma_ports = 2;
  const auto tile_for = [&](int64_t usual_rows) {
    const Var n = dimension("n", {1, 4096}, "", usual_rows);
    const auto rows = te::placeholder("A", {n, 8640}), weights = te::placeholder("B", {8640, 256});
    const auto sum = te::reduce(
        "C", {n, 256}, {8640}, te::Combiner::sum, {rows, weights},
        [&](const te::Indices& s, const te::Indices& r) { return rows({s[0], r[0]}) * weights({r[0], s[1]}); });
    Func func = te::make_func("matmul", {rows, weights}, {sum}, {n});
    mark_constant(func, "B");
    return asked(func, "tile", target).value();
  };
  EXPECT_EQ(tile_for(14), (Choice{14, 2}));
  EXPECT_GE(tile_for(1024)[0] * tile_for(1024)[1], 24);
}

// Products of tiles know their tiles' sizes: a copy fills up the last one.
TEST(OpenSizes, TilesOfAUnitAreFilledUp) {
  const Var n = dimension("n", {1, 4096});
  const auto rows = te::placeholder("A", {n, 96}, bf16), weights = te::placeholder("B", {96, 80}, bf16);
  const auto bias = te::placeholder("D", {80});
  const auto sum = te::reduce("C", {n, 80}, {96}, te::Combiner::sum, {rows, weights},
                              [&](const te::Indices& s, const te::Indices& r) {
                                return cast(f32, rows({s[0], r[0]})) * cast(f32, weights({r[0], s[1]}));
                              });
  const auto biased =
      te::compute("E", {n, 80}, {sum, bias}, [&](const te::Indices& s) { return sum({s[0], s[1]}) + bias({s[1]}); });
  const auto map = te::placeholder("A", {3, 2, n, 32}, bf16);
  const auto pixels = te::reduce("C", {2, n, 80}, {96}, te::Combiner::sum, {map, weights},
                                 [&](const te::Indices& s, const te::Indices& r) {
                                   const Expr pixel = map({floor_div(r[0], 32), s[0], s[1], floor_mod(r[0], 32)});
                                   return cast(f32, pixel) * cast(f32, weights({r[0], s[2]}));
                                 });
  const auto bytes = te::placeholder("A", {n, 64}, i8), small = te::placeholder("B", {64, 48}, i8);
  const auto whole = te::reduce("C", {n, 48}, {64}, te::Combiner::sum, {bytes, small},
                                [&](const te::Indices& s, const te::Indices& r) {
                                  return cast(i32, bytes({s[0], r[0]})) * cast(i32, small({r[0], s[1]}));
                                });
  for (Func func :
       {te::make_func("product", {rows, weights}, {sum}, {n}), te::make_func("bytes", {bytes, small}, {whole}, {n}),
        te::make_func("layer", {rows, weights, bias}, {biased}, {n}),
        te::make_func("pixels", {map, weights}, {pixels}, {n})}) {
    mark_constant(func, "B");
    const auto tiles = asked(func, "tiles", core_with_tiles());
    ASSERT_GT(tiles.candidates.size(), 1U);
    for (const Candidate& candidate : worth_trying(tiles))
      if (func.name == "layer" || candidate.value == tiles.value())
        for (const int64_t size : {1, 39})
          expect_same_meaning_at(func, core_with_tiles(), {{func.parameters[0], size}}, {{"tiles", candidate.value}});
  }
}

// Neither the rows nor their weights stay in the second cache: a block of rows does, while panels pass.
TEST(OpenSizes, ManyRowsAreBlocksWhileLargeWeightsPass) {
  Target target = core(512, 32);
  target.l2.bytes = 128 << 10, target.threads = 2;
  const auto product = [](int64_t usual_rows) {
    const Var n = dimension("n", {1, 4096}, "", usual_rows);
    const auto rows = te::placeholder("A", {8, n, 16}), weights = te::placeholder("B", {128, 512});
    const auto sum = te::reduce("C", {n, 512}, {128}, te::Combiner::sum, {rows, weights},
                                [&](const te::Indices& s, const te::Indices& r) {
                                  const Expr k = r[0];
                                  return rows({floor_div(k, 16), s[0], floor_mod(k, 16)}) * weights({k, s[1]});
                                });
    Func func = te::make_func("matmul", {rows, weights}, {sum}, {n});
    mark_constant(func, "B");
    return func;
  };
  EXPECT_GT(asked(product(2048), "open_blocks", target).value()[0], 1);
  EXPECT_EQ(asked(product(14), "open_blocks", target).value()[0], 1);
  const Func func = product(2048);
  for (const Candidate& candidate : worth_trying(asked(func, "open_blocks", target)))
    for (const int64_t size : {1, 30})
      expect_same_meaning_at(func, target, {{func.parameters[0], size}}, {{"open_blocks", candidate.value}});
}

// Images of 19 rows each: whole tiles leave the quotient when it is simplified, and the blocks still cover all rows.
TEST(OpenSizes, RowsOfSeveralImagesAreTilesInBlocks) {
  const Target target = core(256, 16);
  const Var n = dimension("n", {1, 4096}, "", 1);
  const Expr rows = n * 19;
  const auto a = te::placeholder("A", {rows, 24}), b = te::placeholder("B", {24, 32}),
             r = te::placeholder("R", {rows, 32});
  const auto sum =
      te::reduce("C", {rows, 32}, {24}, te::Combiner::sum, {a, b},
                 [&](const te::Indices& s, const te::Indices& k) { return a({s[0], k[0]}) * b({k[0], s[1]}); });
  const auto total = te::compute("D", {rows, 32}, {r, sum}, [&](const te::Indices& s) { return r(s) + sum(s); });
  Func func = te::make_func("layer", {a, b, r}, {total}, {n});
  mark_constant(func, "B");
  for (const Candidate& candidate : worth_trying(asked(func, "open_blocks", target)))
    expect_same_meaning_at(func, target, {{n, 1}}, {{"open_blocks", candidate.value}});
  for (const int64_t tiles : {6, 7}) expect_same_meaning_at(func, target, {{n, 2}}, {{"open_blocks", {tiles}}});
}

// Words of small elements, too: of a window that is spread over a small map most steps see nothing but padding.
TEST(OpenSizes, SpreadWindowsOfWordsLeaveOutPadding) {
  const Var h = dimension("h", {1, 64}, "", 14), w = dimension("w", {1, 64}, "", 14);
  const auto image = te::placeholder("X", {1, h, w, 32}, bf16), filter = te::placeholder("W", {16, 32, 3, 3}, bf16);
  const auto padded = te::compute("P", {1, h + 12, w + 12, 32}, {image}, [&](const te::Indices& s) {
    const Expr y = s[1] - 6, x = s[2] - 6, inside = y >= 0 && y < h && x >= 0 && x < w;
    return select(inside, load(image.buffer(), {s[0], y, x, s[3]}, inside), const_of(bf16, 0));
  });
  const auto sum = te::reduce("Y", {1, h, w, 16}, {32, 3, 3}, te::Combiner::sum, {padded, filter},
                              [&](const te::Indices& s, const te::Indices& r) {
                                return cast(f32, padded({s[0], s[1] + r[1] * 6, s[2] + r[2] * 6, r[0]})) *
                                       cast(f32, filter({s[3], r[0], r[1], r[2]}));
                              });
  Func func = te::make_func("conv", {image, filter}, {sum}, {h, w});
  mark_constant(func, "W");
  const Target target = core(512, 32);
  EXPECT_EQ(asked(func, "skip_padding", target).value(), Choice{1});
  for (const int64_t is_skipped : {0, 1})
    for (const auto& [height, width] : {std::pair{1, 1}, {9, 5}, {13, 15}})
      expect_same_meaning_at(func, target, {{h, height}, {w, width}}, {{"skip_padding", {is_skipped}}});
}

// A window's weights that the second cache does not hold pass once for several rows of pixels.
TEST(OpenSizes, RowsOfAMapAreBlocksWhileLargeWeightsPass) {
  Target target = core(512, 32), of_large_cache = target;
  target.l2.bytes = 64 << 10, of_large_cache.l2.bytes = 1 << 20, target.threads = of_large_cache.threads = 2;
  const Var h = dimension("h", {1, 64}, "", 14), w = dimension("w", {1, 64}, "", 14);
  const auto image = te::placeholder("X", {1, h + 2, w + 2, 16}), filter = te::placeholder("W", {64, 16, 3, 3});
  const auto sum = te::reduce("Y", {1, h, w, 64}, {16, 3, 3}, te::Combiner::sum, {image, filter},
                              [&](const te::Indices& s, const te::Indices& r) {
                                return image({s[0], s[1] + r[1], s[2] + r[2], r[0]}) * filter({s[3], r[0], r[1], r[2]});
                              });
  Func func = te::make_func("conv", {image, filter}, {sum}, {h, w});
  mark_constant(func, "W");
  EXPECT_EQ(asked(func, "open_blocks", of_large_cache).value()[0], 1);
  const AskedDecision blocks = asked(func, "open_blocks", target);
  EXPECT_GT(blocks.value()[0], 1);
  for (const Candidate& candidate : worth_trying(blocks))
    for (const auto& [height, width] : {std::pair{1, 1}, {9, 5}, {17, 3}})
      expect_same_meaning_at(func, target, {{h, height}, {w, width}}, {{"open_blocks", candidate.value}});
}

}  // namespace
}  // namespace tw::test
