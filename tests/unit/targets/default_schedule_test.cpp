// The CPU's default schedules by the oracle: on cores of every width, each sample Func means the same before and after,
// and products end in registers.
#include "targets/cpu/default_schedule.h"

#include <gtest/gtest.h>

#include "schedule/layout.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/prefetch.h"
#include "tensor_ir/passes/skip_iterations.h"
#include "tensor_ir/te.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/targets/cores.h"
#include "tests/unit/targets/same_meaning.h"

namespace tw::test {
namespace {

bool has_register_tile(const Func& func) {
  bool found = false;
  visit(func.body, [&](const Allocate& a) { found |= a.buffer->scope == Scope::register_; });
  return found;
}

// What the default schedule decided, the first number of it or another one; 0 where it did not ask.
int64_t choice(const std::string& name, const Func& func, const Target& target, size_t number = 0) {
  const Schedule schedule = cpu::default_schedule(func, target);
  for (const AskedDecision& asked : schedule.asked())
    if (asked.name == name) return asked.value().at(number);
  return 0;
}

TEST(DefaultSchedule, MeansTheSame) {
  for (const Target& target : cores()) {
    for (const SampleFunc& sample : sample_funcs()) expect_same_meaning(sample.func, target);
  }
}

// Data and result in blocks of channels, as the graph stores them: groups that fill vectors, divide them, or neither.
TEST(DefaultSchedule, GroupedConvolutionsInBlocks) {
  for (const Target& target : cores()) {
    for (const Func& func : {grouped_conv2d(3, 24, 24, 5, 3, 1, 1), grouped_conv2d(4, 8, 8, 9, 3, 2, 1),
                             grouped_conv2d(5, 4, 4, 7, 3, 1, 1), grouped_conv2d(2, 20, 40, 6, 1, 1, 0),
                             grouped_conv2d(2, 16, 32, 31, 1, 1, 0)}) {
      Schedule blocked(func);
      const std::string lanes = std::to_string(target.lanes(f32));
      for (const std::string buffer : {"X", "out"}) {
        blocked.transform_layout(buffer,
                                 parse_index_map("(n, c, h, w) -> (n, c // " + lanes + ", h, w, c % " + lanes + ")"));
      }
      expect_same_meaning(blocked.func(), target);
      EXPECT_TRUE(has_register_tile(cpu::default_schedule(blocked.func(), target).func())) << to_text(blocked.func());
    }
  }
}

// Channel by channel: tiles of channels go through memory, from which they are written along the image's rows; rows of
// many panels are packed before, and what is padded is stored in blocks of channels.
TEST(DefaultSchedule, ConvolutionsOfRowMajorImages) {
  const auto copies_on_stack = [](const Func& scheduled, const std::string& of) {
    bool found = false;
    visit(scheduled.body,
          [&](const Allocate& a) { found |= a.buffer->scope == Scope::stack && a.buffer->name.rfind(of, 0) == 0; });
    return found;
  };
  for (const Target& target : cores()) {
    const int lanes = target.lanes(f32);
    for (const Func& func : {conv2d(lanes, 9 * lanes, 14, 1, 1, 0), conv2d(2 * lanes, 2 * lanes + 3, 9, 3, 2, 1),
                             conv2d(lanes, 3 * lanes, 7, 3, 1, 1), conv2d(5, 2 * lanes, 6, 1, 1, 0)})
      expect_same_meaning(func, target);
  }
  const Target target = core(512, 32);
  const auto schedule_of = [&](const Func& f) { return cpu::default_schedule(f, target).func(); };
  EXPECT_TRUE(copies_on_stack(schedule_of(conv2d(256, 256, 14, 1, 1, 0)), "conv"));
  EXPECT_TRUE(copies_on_stack(schedule_of(conv2d(256, 1024, 14, 1, 1, 0)), "X"));
  EXPECT_FALSE(copies_on_stack(schedule_of(conv2d(256, 256, 14, 1, 1, 0)), "X")) << "few panels";
  EXPECT_TRUE(copies_on_stack(schedule_of(conv2d(2048, 256, 64, 1, 1, 0)), "X")) << "lines in few sets of the cache";
  EXPECT_FALSE(copies_on_stack(schedule_of(conv2d(64, 3, 64, 1, 1, 0)), "conv")) << "vectors of pixels";
}

// Far apart, most steps of a window see padding only; next to each other, tiles of several positions hardly ever do.
TEST(DefaultSchedule, LeavesOutPaddingOfDilatedWindows) {
  const auto skipping_loops = [](const Func& func, const Target& target) {
    int count = 0;
    visit(cpu::default_schedule(func, target).func().body,
          [&](const For& loop) { count += loop.attributes.count(skip_iterations_attribute) != 0; });
    return count;
  };
  for (const Target& target : cores()) {
    for (const Func& func : {conv2d(16, 32, 14, 3, 1, 12, 12), conv2d(16, 32, 13, 3, 2, 18, 18)}) {
      EXPECT_GE(skipping_loops(func, target), 1);
      expect_same_meaning(func, target);
    }
    EXPECT_EQ(skipping_loops(conv2d(16, 32, 14, 3, 1, 1), target), 0);
    EXPECT_EQ(skipping_loops(conv2d(16, 32, 28, 3, 1, 2, 2), target), 0);
  }
  // Tiles of few neighbours leave out more.
  const auto rows_of_tile = [](int64_t dilation) {
    return choice("tile", conv2d(64, 256, 14, 3, 1, dilation, dilation), core(512, 32));
  };
  EXPECT_LE(rows_of_tile(12), 7);
  EXPECT_GE(rows_of_tile(1), 14);
}

// What is read in blocks of channels and written row by row: a tile of vectors along a row, for each channel of a
// block.
TEST(DefaultSchedule, BlocksOfChannelsAreTransposedIntoRows) {
  const auto image = te::placeholder("A", {1, 24, 9, 20});
  Schedule blocked(te::make_func("f", {image}, {te::compute("C", image.shape(), {image}, [&](const te::Indices& s) {
                                   return max(image(s), const_of(f32, 0));
                                 })}));
  blocked.transform_layout("A", parse_index_map("(n, c, h, w) -> (n, c // 8, h, w, c % 8)"));
  for (const Target& target : cores()) {
    int64_t channels = 0;  // of the loop around the vectors
    visit(cpu::default_schedule(blocked.func(), target).func().body, [&](const For& loop) {
      const auto* inner = loop.body.as<For>();
      if (inner && inner->loop_kind == LoopKind::vectorized && loop.loop_kind == LoopKind::unrolled)
        channels = as_int(loop.extent).value_or(0);
    });
    EXPECT_GE(channels, 4) << target.name;
    expect_same_meaning(blocked.func(), target);
  }
}

TEST(DefaultSchedule, KeepsWeightsAndResultsOfCallersInPlace) {
  for (const Target& target : cores()) {
    for (const SampleFunc& sample : sample_funcs()) {
      const Func scheduled = cpu::default_schedule(sample.func, target).func();
      for (size_t i = 0; i < scheduled.buffers.size(); ++i) {
        const Buffer& before = sample.func.buffers[i];
        if (before->is_constant) continue;
        EXPECT_EQ(const_shape(scheduled.buffers[i]), const_shape(before)) << sample.name << " " << before->name;
      }
    }
  }
}

TEST(DefaultSchedule, ProductsEndInRegisters) {
  for (const Target& target : cores()) {
    for (const Func& func : {matmul(64, 128, 32), matmul_epilogue(64, 128, 32), conv2d(16, 64, 14, 3, 1, 1)}) {
      EXPECT_TRUE(has_register_tile(cpu::default_schedule(func, target).func()))
          << func.name << " on a " << target.name;
    }
  }
}

// What is made of equal parts of the columns is made where a tile of all parts is in registers: nothing of the product
// is ever in memory.
TEST(DefaultSchedule, PartsOfColumnsAreCombinedInRegisters) {
  for (const Target& target : cores()) {
    if (target.lanes(f32) == 1) continue;
    for (const Func& func : {glu(64, 96, 32), lstm_step(1, 96, 64), lstm_step(1, 100, 64), gru_step(1, 96, 64)}) {
      const Func scheduled = cpu::default_schedule(func, target).func();
      const auto where = func.name + " on a " + target.name;
      int products = 0;
      visit(scheduled.body, [&](const Allocate& a) {
        products += a.buffer->name == "C";
        EXPECT_EQ(a.buffer->scope, Scope::register_) << where;
      });
      EXPECT_EQ(products, 1) << where;
      int parallel = 0;
      visit(scheduled.body, [&](const For& loop) { parallel += loop.loop_kind == LoopKind::parallel; });
      EXPECT_EQ(parallel, 1) << where;
    }
  }
}

// Tiles of four parts would be a row each, of many: another pass costs less.
TEST(DefaultSchedule, PartsOfColumnsAreSeparateWhereTilesWouldBeUneven) {
  Target target = core(256, 16);
  const Schedule joined = cpu::default_schedule(lstm_step(1, 96, 64), target),
                 separate = cpu::default_schedule(lstm_step(512, 96, 512), target);
  const auto decided = [](const Schedule& schedule) {
    for (const AskedDecision& asked : schedule.asked())
      if (asked.name == "join_parts") return asked.value()[0];
    return int64_t{-1};
  };
  EXPECT_EQ(decided(joined), 1);
  EXPECT_EQ(decided(separate), 0);
}

// Tails of tiles and of vectors included: 24 columns to a tile are a vector and a half of 16 lanes.
TEST(DefaultSchedule, LoopsAreProvenIndependent) {
  std::vector<Func> funcs = {conv2d(3, 8, 192, 3, 2, 1), conv2d(16, 8, 48, 1, 1, 0)};
  for (const SampleFunc& sample : sample_funcs()) funcs.push_back(sample.func);
  for (const Target& target : cores()) {
    for (const Func& func : funcs) {
      const Func scheduled = cpu::default_schedule(func, target).func();
      visit(scheduled.body, [&](const For& loop) {
        EXPECT_FALSE(loop.attributes.count("independence_unproven"))
            << loop.var.name() << " on a " << target.name << " of\n"
            << to_text(scheduled);
      });
    }
  }
}

std::vector<std::string> instructions_in(const Func& scheduled) {
  std::vector<std::string> names;
  visit(scheduled.body, [&](const For& loop) {
    if (loop.loop_kind == LoopKind::tensorized)
      names.push_back(std::get<std::string>(loop.attributes.at("instruction")));
  });
  return names;
}

TEST(DefaultSchedule, ProductsOfSmallElementsEndInInstructions) {
  using Names = std::vector<std::string>;
  for (const Target& target : {core(128, 16), core(128, 32), core(256, 16), core(512, 32)}) {
    SCOPED_TRACE(target.name);
    const auto schedule_of = [&](const Func& f) { return instructions_in(cpu::default_schedule(f, target).func()); };
    EXPECT_EQ(schedule_of(narrow_matmul(1, 15, 40, 18, bf16, bf16, f32, bf16, true)), Names{"dot_bf16"});
    EXPECT_EQ(schedule_of(narrow_matmul(3, 20, 35, 12, bf16, bf16, f32, f32, false)), Names{"dot_bf16"});
    EXPECT_EQ(schedule_of(narrow_matmul(1, 15, 40, 24, u8, i8, i32, i32, true)), Names{"dot_u8s8"});
    EXPECT_EQ(schedule_of(narrow_matmul(1, 15, 40, 24, i8, i8, i32, i32, true)), Names{"dot_s8s8"});
    EXPECT_EQ(schedule_of(narrow_conv(32, 48, 9, bf16, f32)), Names{"dot_bf16"});
    EXPECT_EQ(schedule_of(narrow_conv(64, 96, 9, bf16, f32, 2)), Names{"dot_bf16"});
    EXPECT_EQ(schedule_of(narrow_matmul(1, 7, 33, 17, bf16, bf16, f32, f32, true)), Names{});  // pairs do not divide k
    EXPECT_EQ(schedule_of(narrow_matmul(1, 9, 32, 16, f32, bf16, f32, f32, true)), Names{});
  }
}

// Rows, columns and blocks of k that divide and that do not; few rows, and rows without words, are left to vectors.
TEST(DefaultSchedule, ProductsOfSmallElementsEndInTiles) {
  const Target target = core_with_tiles();
  const auto product_of = [&](const Func& f) {
    std::vector<std::string> names = instructions_in(cpu::default_schedule(f, target).func());
    return names.size() == 3 ? names[1] : names.empty() ? "" : names[0];
  };
  EXPECT_EQ(product_of(narrow_matmul(1, 64, 64, 64, bf16, bf16, f32, f32, true)), "tile_dot_bf16");
  EXPECT_EQ(product_of(narrow_matmul(1, 37, 24, 48, bf16, bf16, f32, bf16, true)), "tile_dot_bf16");
  EXPECT_EQ(product_of(narrow_matmul(3, 20, 48, 64, bf16, bf16, f32, f32, false)), "tile_dot_bf16");
  EXPECT_EQ(product_of(narrow_matmul(3, 20, 35, 64, bf16, bf16, f32, f32, false)), "dot_bf16");
  EXPECT_EQ(product_of(narrow_matmul(1, 15, 40, 24, u8, i8, i32, i32, true)), "tile_dot_u8s8");
  EXPECT_EQ(product_of(narrow_matmul(1, 40, 40, 64, i8, i8, i32, i32, true)), "tile_dot_s8s8");
  EXPECT_EQ(product_of(narrow_conv(32, 48, 9, bf16, f32)), "tile_dot_bf16");
  EXPECT_EQ(product_of(narrow_conv(64, 96, 9, bf16, f32, 2)), "tile_dot_bf16");
  EXPECT_EQ(product_of(narrow_conv(64, 64, 9, bf16, f32, 4)), "tile_dot_bf16");
  EXPECT_EQ(product_of(narrow_conv(64, 32, 9, bf16, f32, 4)), "");  // tiles of 16 columns
  EXPECT_EQ(product_of(narrow_conv(36, 32, 9, i8, i32)), "tile_dot_s8s8");
  EXPECT_EQ(product_of(narrow_conv(36, 32, 9, bf16, f32)), "");  // what pads a block need not be finite
  EXPECT_EQ(product_of(narrow_matmul(1, 1, 64, 64, bf16, bf16, f32, f32, true)), "dot_bf16");
  EXPECT_EQ(product_of(narrow_matmul(1, 64, 33, 17, bf16, bf16, f32, f32, true)), "");
}

// Words of whole blocks: the layout of the weights has zeros where the last block of the data is not full.
TEST(DefaultSchedule, TilesTakeWholeBlocksOfChannels) {
  for (const auto& [channels, block, blocks] :
       {std::array<int64_t, 3>{88, 64, 2}, {100, 32, 4}, {40, 64, 1}, {128, 64, 2}, {36, 16, 3}}) {
    const Func f = narrow_conv(channels, 32, 9, i8, i32, 1, block);
    const Schedule schedule = cpu::decided_schedule(f, core_with_tiles(), {});
    int64_t found = 0;
    visit(schedule.func().body, [&](const Block& b) {
      for (const IterVar& iter : b.iters)
        if (iter.kind == IterKind::reduce && as_int(iter.extent).value() > 3) found = *as_int(iter.extent);
    });
    EXPECT_EQ(found, blocks * block) << channels << " channels in blocks of " << block;
    expect_same_meaning(f, core_with_tiles());
  }
}

// Rows and columns that pair up and that do not, batches, windows; what gives no rows of eight bytes stays with dot
// products, as does a single row.
TEST(DefaultSchedule, ProductsOfSmallElementsEndInMatrices) {
  const Target target = core_with_matrices();
  using Names = std::vector<std::string>;
  const auto of = [](const char* product) { return Names{"matrix_zero_i32", product}; };
  const auto expect = [&](const Func& f, const Names& names) {
    EXPECT_EQ(instructions_in(cpu::default_schedule(f, target).func()), names) << f.name;
    expect_same_meaning(f, target);
  };
  expect(narrow_matmul(1, 16, 24, 96, i8, i8, i32, i32, true), of("matrix_s8s8"));
  expect(narrow_matmul(1, 15, 40, 104, u8, i8, i32, i32, true), of("matrix_u8s8"));
  expect(narrow_matmul(1, 15, 37, 96, i8, i8, i32, i32, true), of("matrix_s8s8"));
  expect(narrow_matmul(1, 2, 3, 64, i8, i8, i32, i32, true), of("matrix_s8s8"));
  expect(narrow_matmul(3, 21, 18, 64, i8, i8, i32, i32, false), of("matrix_s8s8"));
  expect(narrow_conv(32, 48, 9, i8, i32), of("matrix_s8s8"));
  expect(narrow_matmul(3, 21, 17, 64, i8, i8, i32, i32, false), Names{"dot_s8s8"});
  expect(narrow_matmul(1, 15, 40, 92, i8, i8, i32, i32, true), Names{"dot_s8s8"});
  expect(narrow_matmul(1, 1, 40, 64, i8, i8, i32, i32, true), Names{"dot_s8s8"});
}

// A second operand that is no weight is packed by the worker that uses it, panel by panel; where panels do not divide
// among the workers, by a pass of its own.
TEST(DefaultSchedule, PacksPanelsWhereTheyAreUsed) {
  const auto copies_in = [](const Func& scheduled, Scope scope) {
    int found = 0;
    visit(scheduled.body, [&](const Allocate& a) { found += a.buffer->scope == scope; });
    return found;
  };
  for (Target target : cores()) {
    for (const bool is_transposed : {false, true}) {
      for (const int threads : {1, 5}) {
        target.threads = threads;
        const Func product = matmul(61, 42, 17, is_transposed, false, f32);
        expect_same_meaning(product, target);
        const Func scheduled = cpu::default_schedule(product, target).func();
        EXPECT_EQ(copies_in(scheduled, Scope::stack), threads == 1) << to_text(scheduled);
        EXPECT_EQ(copies_in(scheduled, Scope::stack) + copies_in(scheduled, Scope::global), 1);
      }
    }
    target.threads = 2;
    const Func batched = narrow_matmul(2, 130, 16, 9, f32, f32, f32, f32, false);
    expect_same_meaning(batched, target);
    EXPECT_EQ(copies_in(cpu::default_schedule(batched, target).func(), Scope::stack), 1);
  }
}

// C[i, j] = Σ A[k, i] · B[k, j]
Func transposed_matmul(int64_t m, int64_t n, int64_t k, bool has_constant_weights) {
  const te::Tensor a = te::placeholder("A", {k, m}), b = te::placeholder("B", {k, n});
  const te::Tensor c =
      te::reduce("C", {m, n}, {k}, te::Combiner::sum, {a, b},
                 [&](const te::Indices& s, const te::Indices& r) { return a({r[0], s[0]}) * b({r[0], s[1]}); });
  Func f = te::make_func("transposed_matmul", {a, b}, {c});
  if (has_constant_weights) mark_constant(f, "B");
  return f;
}

// A first operand that is contiguous along the rows is packed in blocks of rows, tails of blocks and tiles included.
TEST(DefaultSchedule, PacksRowsThatLieAcross) {
  for (Target target : cores()) {
    target.l1.bytes = 1 << 10;
    for (const int threads : {1, 3}) {
      target.threads = threads;
      for (const int64_t l2_bytes : {8 << 10, 64 << 10}) {
        target.l2.bytes = l2_bytes;
        for (const int64_t m : {48, 61}) {
          for (const bool has_constant_weights : {false, true}) {
            const Func product = transposed_matmul(m, 130, 21, has_constant_weights);
            for (const int64_t packing : {0, 1}) {
              const Decisions decisions{{"row_packing", {packing}}};
              expect_same_meaning(product, target, decisions);
              bool is_packed = false;
              visit(cpu::decided_schedule(product, target, decisions).func().body,
                    [&](const Allocate& a) { is_packed |= a.buffer->name == "A_stack"; });
              EXPECT_EQ(is_packed, packing == 1) << target.name;
            }
          }
        }
      }
    }
  }
}

// The loops outside of the first one over panels of C's last dimension.
int64_t iterations_before_panels(const Schedule& schedule) {
  for (const AskedDecision& asked : schedule.asked()) {
    if (asked.name != "row_blocks") continue;
    int64_t count = 1;
    for (const int64_t part : asked.candidates[asked.chosen].value) count *= std::max<int64_t>(1, part);
    return count;
  }
  return 0;
}

// Many rows meet few weights in blocks that stay in the second cache; every block that can be decided means the same.
TEST(DefaultSchedule, CutsRowsIntoBlocks) {
  for (Target target : cores_without_tiles()) {
    target.l2.bytes = 16 << 10;
    const Func product = matmul(640, 128, 8, false, true);
    const Schedule analytic = cpu::default_schedule(product, target);
    EXPECT_GT(iterations_before_panels(analytic), 1) << target.name;
    for (const AskedDecision& asked : analytic.asked()) {
      if (asked.name != "row_blocks") continue;
      EXPECT_GT(asked.candidates.size(), 1u);
      for (const Candidate& candidate : asked.candidates) {
        SCOPED_TRACE(to_text(candidate.value));
        expect_same_meaning(product, target, {{asked.name, candidate.value}});
      }
    }
  }
}

// Weights come from memory: while its tiles use a panel, each asks for its part of the next one, unless panels do not
// stay in the second cache or one tile uses each.
TEST(DefaultSchedule, AsksForTheNextPanel) {
  const auto panels_asked_for = [](const Schedule& schedule) {
    std::vector<int64_t> found;
    visit(schedule.func().body, [&](const For& loop) {
      if (!loop.attributes.count(prefetch_next_attribute)) return;
      for (const auto& [name, bytes] : std::get<BufferBytes>(loop.attributes.at(prefetch_next_attribute)))
        found.push_back(bytes);
    });
    return found;
  };
  const auto product = [](int64_t m) { return matmul(m, 512, 32, false, true); };
  Target target = core(512, 32);
  for (const int64_t m : {64, 4096}) {
    const auto found = panels_asked_for(cpu::default_schedule(product(m), target));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0] % (32 * 64), 0) << "whole panels of 32 rows";
  }
  EXPECT_TRUE(panels_asked_for(cpu::default_schedule(product(2), target)).empty());
  target.l2.bytes = 4 << 10;
  EXPECT_TRUE(panels_asked_for(cpu::default_schedule(product(64), target)).empty());
}

// Large images with few weights: each worker has rows of its own; of small ones with many, panels.  By tiles and by dot
// products.
TEST(DefaultSchedule, NarrowProductsOfLargeImagesAreSharedByRows) {
  for (const Target& target : {core(512, 32), core_with_tiles()}) {
    const auto blocks_of = [&](const Func& func) { return choice("row_blocks", func, target, 1); };
    EXPECT_GT(blocks_of(narrow_conv(64, 64, 58, bf16, f32)), 1) << target.name;
    EXPECT_LE(blocks_of(narrow_conv(512, 512, 9, bf16, f32)), 1) << target.name;
  }
  expect_same_meaning(narrow_conv(32, 32, 18, bf16, f32), core(512, 32));
}

// The same of words, which tiles read a tile at a time.
TEST(DefaultSchedule, NarrowProductsAskForTheNextPanel) {
  for (const Target& target : {core(512, 32), core_with_tiles()}) {
    const auto asks = [&](const Func& func) {
      bool found = false;
      visit(cpu::default_schedule(func, target).func().body,
            [&](const For& loop) { found |= loop.attributes.count(prefetch_next_attribute) > 0; });
      return found;
    };
    EXPECT_TRUE(asks(narrow_matmul(1, 256, 512, 128, bf16, bf16, f32, f32, true))) << target.name;
    EXPECT_TRUE(asks(narrow_matmul(1, 256, 512, 128, u8, i8, i32, i32, true))) << target.name;
    EXPECT_TRUE(asks(narrow_conv(64, 96, 20, bf16, f32))) << target.name;
    EXPECT_FALSE(asks(narrow_matmul(1, 256, 16, 128, bf16, bf16, f32, f32, true))) << "there is no next one";
    EXPECT_FALSE(asks(narrow_matmul(2, 256, 512, 128, bf16, bf16, f32, f32, false))) << "it is packed by whom uses it";
  }
}

// Sums over rows that share nothing: one task takes vectors side by side, also where another axis would give it rows.
TEST(DefaultSchedule, SumsOverRowsTakeVectorsSideBySide) {
  const Target target = core(512, 32);
  const auto vectors_of = [&](const Func& func) { return choice("vectors", func, target); };
  EXPECT_EQ(vectors_of(column_sum(1, 50, 1024)), 8);
  EXPECT_EQ(vectors_of(column_sum(8, 50, 1024)), 8);
  EXPECT_EQ(vectors_of(column_sum(8, 50, 96)), 2) << "whole vectors";
  EXPECT_EQ(vectors_of(column_sum(8, 50, 90)), 0);
  for (const Target& each : cores())
    for (const int64_t columns : {32, 90, 96, 128}) expect_same_meaning(column_sum(3, 7, columns), each);
}

// What loops ask for: of which buffer, to which cache, and how many bytes ahead.
std::vector<std::string> asked_for(const Schedule& schedule) {
  std::vector<std::string> found;
  visit(schedule.func().body, [&](const For& loop) {
    for (const Cache cache : {Cache::first, Cache::second, Cache::third}) {
      const std::string key = prefetch_attribute(cache);
      if (!loop.attributes.count(key)) continue;
      for (const auto& [name, bytes] : std::get<BufferBytes>(loop.attributes.at(key)))
        found.push_back(key + ":" + name + " " + std::to_string(bytes));
    }
  });
  return found;
}

// Weights for few rows come from memory, which is asked for them ahead; but from the cache that cores share they come
// faster than one can ask.
TEST(DefaultSchedule, WeightsThatStayCachedAreNotAskedFor) {
  const Target target = core(512, 32);
  Func func = test::matmul(1, 2048, 512, false, true);
  EXPECT_EQ(asked_for(cpu::decided_schedule(func, target, {})), std::vector<std::string>{"prefetch_l1:B 1024"});
  for (Buffer& buffer : func.buffers) {
    if (!buffer->is_constant) continue;
    BufferNode node = *buffer.get();
    node.is_cached = true;
    const Buffer cached(std::move(node));
    func.body = replace_buffer(func.body, buffer, cached);
    buffer = cached;
  }
  EXPECT_EQ(asked_for(cpu::decided_schedule(func, target, {})), std::vector<std::string>{});
  expect_same_meaning(func, target);
}

// A later row of a softmax or normalisation is asked for by the last stage that reads this one: the next, where rows
// stay in the first cache, and one that is well ahead, too, where they come from memory.
TEST(DefaultSchedule, StagesOfARowAskForALaterOne) {
  Target target = core(512, 32);
  target.l1.bytes = 48 << 10;
  const auto asked = [&](const Func& func, const Decisions& decisions = {}) {
    return asked_for(cpu::decided_schedule(func, target, decisions));
  };
  using Asked = std::vector<std::string>;
  const Asked none, one_row{"prefetch_l1:X 4096"}, far_row{"prefetch_l1:X 4096", "prefetch_l2:X 65536"};
  EXPECT_EQ(asked(test::softmax(16, 1024)), one_row);
  EXPECT_EQ(asked(test::softmax(16, 1024), {{"row_prefetch", {0}}}), none);
  EXPECT_EQ(asked(test::layer_norm(16, 1024)), one_row);
  EXPECT_EQ(asked(test::softmax(16, 4096)), Asked{"prefetch_l1:X 16384"}) << "exp hides it";
  EXPECT_EQ(asked(test::softmax(16, 8192)), none) << "it would not stay in the first cache";
  EXPECT_EQ(asked(test::softmax(16, 8192), {{"row_prefetch", {1}}}), Asked{"prefetch_l2:X 32768"});
  EXPECT_EQ(asked(test::softmax(1 << 20, 1024)), far_row) << "from memory";
  const Asked beside_writing{"prefetch_l1:X 4096", "prefetch_l2:X 65536", "prefetch_l3:X 81920"};
  EXPECT_EQ(asked(test::layer_norm(16, 1024), {{"row_prefetch", {2}}}), beside_writing);
  const Asked whole_rows{"prefetch_l1:X 4000", "prefetch_l2:X 68000"};
  EXPECT_EQ(asked(test::softmax(16, 1000), {{"row_prefetch", {2}}}), whole_rows);
  EXPECT_EQ(asked(test::softmax(16, 64)), Asked{"prefetch_l1:X 256"}) << "a few vectors: the row's loop asks";
  // Of rows that nearly fill the caches, what is asked for pushes out what is needed next.
  const auto all = static_cast<int64_t>(1024 / cpu::share_of_caches(test::softmax(1024, 1024), target));
  EXPECT_EQ(asked(test::softmax(all / 4, 1024)), one_row);
  EXPECT_EQ(asked(test::softmax(all * 3 / 4, 1024)), none);
  EXPECT_EQ(asked(test::softmax(all * 5 / 4, 1024)), far_row);
  for (const Target& each : cores())
    for (const Func& func : {test::softmax(5, 272), test::layer_norm(5, 272)}) expect_same_meaning(func, each);
}

// What comes from memory is one stream, asked for ahead, or several.
TEST(DefaultSchedule, LargeArraysAreStreams) {
  const Target target = core(512, 32);
  const auto count = [&](const Func& func, const Decisions& decisions = {}) {
    const Schedule schedule = cpu::decided_schedule(func, target, decisions);
    const auto asking = static_cast<int64_t>(asked_for(schedule).size());
    int64_t streams = 1;
    visit(schedule.func().body, [&](const For& loop) {
      if (loop.loop_kind == LoopKind::unrolled) streams = as_int(loop.extent).value_or(0);
    });
    return std::pair(asking, streams);
  };
  EXPECT_EQ(count(test::gelu(1 << 13, 1 << 13)), std::pair(int64_t{2}, int64_t{1})) << "the next reads, too";
  EXPECT_EQ(count(test::gelu(1 << 13, 1 << 13), {{"streams", {4}}}), std::pair(int64_t{1}, int64_t{4}));
  EXPECT_EQ(count(test::gelu(16, 1 << 10)), std::pair(int64_t{0}, int64_t{1})) << "from the caches";
}

// Rows of words come from the caches again for each panel: of long ones, panels are wide.
TEST(DefaultSchedule, PanelsOfWordsAreWideWhereRowsAreLong) {
  Target target = parse_target("x86:avx512+avx512bf16");
  target.threads = 2, target.fma_ports = 1, target.l2.rate = 32, target.l3.rate = 12;  // as Zen 4
  const auto a = te::placeholder("A", {128, 768}, bf16), b = te::placeholder("B", {768, 768}, bf16);
  Func func = te::make_func(
      "product", {a, b},
      {te::reduce("C", {128, 768}, {768}, te::Combiner::sum, {a, b}, [&](const te::Indices& s, const te::Indices& r) {
        return cast(f32, a({s[0], r[0]})) * cast(f32, b({r[0], s[1]}));
      })});
  mark_constant(func, "B");
  EXPECT_GE(choice("tile", func, target, 1), 2);
}

// Tiles take whole steps of k together: four, or two; of an odd k one.
TEST(DefaultSchedule, TilesTakeSeveralStepsOfK) {
  const auto steps_of = [](const Func& func) { return choice("k_unroll", func, core(512, 32)); };
  EXPECT_EQ(steps_of(matmul(7, 16, 24, false, true)), 4);
  EXPECT_EQ(steps_of(matmul(7, 16, 26, false, true)), 2);
  EXPECT_EQ(steps_of(matmul(7, 16, 23, false, true)), 1);
  for (const Target& each : cores())
    for (const int64_t k : {1, 2, 3, 23, 24, 26}) expect_same_meaning(matmul(7, 33, k, false, true), each);
}

}  // namespace
}  // namespace tw::test
