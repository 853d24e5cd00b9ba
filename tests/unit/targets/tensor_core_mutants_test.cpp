// Programs on tensor cores that forget to wait: the oracle or the emulator finds each.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <regex>

#include "tests/unit/mutants.h"
#include "tests/unit/targets/tensor_core_cases.h"

namespace tw {
namespace {

using test::Copier;
using test::lowered_by_groups;
using test::lowered_product;
using test::operands;
using test::product;
using test::with_groups;

// Four versions of each operand, so that copies run three steps ahead.
const Func& long_product() {
  static const Func func = lowered_product(product({1, 16, 16, 192, bf16})).kernels[0].func;
  return func;
}
const Func& long_product_of_bytes() {
  static const Func func = lowered_product(product({1, 16, 16, 384, u8, false, true, false, i8})).kernels[0].func;
  return func;
}

// Whose products are one step behind, and copies two ahead.  With a warp that copies, blocks make two tiles, of five
// steps in four places.
const LoweredFunc& long_product_by_groups(Copier copier) {
  const auto make = [](Copier own) {
    if (own == Copier::own_warp)
      return lowered_by_groups({{1, 128, 192, 320, bf16, false, true}, {64, 64, 64, 4, 1}, 4, own, 1, 2});
    return lowered_by_groups({{1, 64, 64, 320, bf16, false, true}, {64, 64, 64, 4, 1}, 4, own});
  };
  static const std::array<LoweredFunc, 3> all = {make(Copier::all_threads), make(Copier::one_thread),
                                                 make(Copier::own_warp)};
  return all[static_cast<size_t>(copier)];
}

constexpr double near = 1e-3;

// Whether emitted text computes something else than it should, or fails, in the emulator.
bool is_caught_in_emulator(const LoweredFunc& lowered, const std::string& text) {
  const Func& func = lowered.kernels[0].func;
  std::vector<NDArray> expected = test::random_buffers(func, 5), actual;
  for (const NDArray& array : expected) actual.push_back(array.clone());
  interpret(func, expected);
  try {
    test::run_on_device(lowered, func, test::emulated_image(text), actual);
  } catch (const Error&) {
    return true;
  }
  return !(test::largest_difference(actual.back(), expected.back()) <= near);
}

struct Mutant {
  const char *what, *pattern, *replacement;
  int occurrence = 0;  // -1: all
};
void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.what;
}
std::string name_of_mutant(const ::testing::TestParamInfo<Mutant>& info) {
  std::string name = info.param.what;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

std::string mutated(const std::string& text, const Mutant& mutant) {
  const std::regex pattern(mutant.pattern);
  if (mutant.occurrence < 0) return std::regex_replace(text, pattern, mutant.replacement);
  std::sregex_iterator at(text.begin(), text.end(), pattern);
  for (int i = 0; i < mutant.occurrence && at != std::sregex_iterator(); ++i) ++at;
  if (at == std::sregex_iterator()) return text;
  return text.substr(0, static_cast<size_t>(at->position())) + at->format(mutant.replacement) +
         text.substr(static_cast<size_t>(at->position() + at->length()));
}

TEST(TensorCoreMutants, WithoutAChangeNothingIsCaught) {
  for (const Copier copier : {Copier::all_threads, Copier::one_thread, Copier::own_warp}) {
    const LoweredFunc& by_groups = long_product_by_groups(copier);
    EXPECT_FALSE(test::is_caught(to_text(by_groups.kernels[0].func), by_groups.kernels[0].func, near));
    EXPECT_FALSE(is_caught_in_emulator(by_groups, cuda::emit_cuda(by_groups.kernels, with_groups().shared_bytes)));
  }
  for (const Func& func : {long_product(), long_product_of_bytes()})
    EXPECT_FALSE(test::is_caught(to_text(func), func, near)) << to_text(func);
}

class TensorCoreMutant : public ::testing::TestWithParam<Mutant> {};

TEST_P(TensorCoreMutant, IsCaught) {
  const std::string text = to_text(long_product()), changed = mutated(text, GetParam());
  ASSERT_TRUE(changed != text) << text;
  EXPECT_TRUE(test::is_caught(changed, long_product(), near)) << changed;
}

class TensorCoreMutantOfBytes : public ::testing::TestWithParam<Mutant> {};

TEST_P(TensorCoreMutantOfBytes, IsCaught) {
  const std::string text = to_text(long_product_of_bytes()), changed = mutated(text, GetParam());
  ASSERT_TRUE(changed != text) << text;
  EXPECT_TRUE(test::is_caught(changed, long_product_of_bytes(), near)) << changed;
}

INSTANTIATE_TEST_SUITE_P(
    All, TensorCoreMutantOfBytes,
    ::testing::Values(Mutant{"nobody waits for copies", R"(wait_copies\(2\))", ""},
                      Mutant{"one group too many may be on its way", R"(wait_copies\(2\))", "wait_copies(3)"},
                      Mutant{"threads do not meet in the loop", R"(barrier\(\)\n +if)", "if"},
                      Mutant{"the first group is never ended", R"(commit_copies\(\))", "", 0},
                      Mutant{"groups of the loop are never ended", R"(commit_copies\(\))", "", 3},
                      Mutant{"copies overwrite what is in use", R"(\(r0_0 \+ 3\) % 4)", "r0_0 % 4", 0},
                      Mutant{"three versions of an operand instead of four", R"(% 4 \* 1024)", "% 3 * 1024", -1},
                      Mutant{"products use the step before", R"(r0_0 % 4 \* 1024, 64)", "(r0_0 + 3) % 4 * 1024, 64"},
                      Mutant{"sums do not begin with zero", R"(broadcast\(0i32, 2\))", "broadcast(1i32, 2)"}),
    name_of_mutant);

INSTANTIATE_TEST_SUITE_P(
    All, TensorCoreMutant,
    ::testing::Values(Mutant{"nobody waits for copies", R"(wait_copies\(2\))", ""},
                      Mutant{"one group too many may be on its way", R"(wait_copies\(2\))", "wait_copies(3)"},
                      Mutant{"two groups too many", R"(wait_copies\(2\))", "wait_copies(4)"},
                      Mutant{"threads do not meet in the loop", R"(barrier\(\)\n +if)", "if"},
                      Mutant{"the first group is never ended", R"(commit_copies\(\))", "", 0},
                      Mutant{"the second group is never ended", R"(commit_copies\(\))", "", 1},
                      Mutant{"the third group is never ended", R"(commit_copies\(\))", "", 2},
                      Mutant{"groups of the loop are never ended", R"(commit_copies\(\))", "", 3},
                      Mutant{"the first copies are made twice", R"(A_shared\[(.*)256)", "A_shared[$1 0", 0},
                      Mutant{"copies overwrite what is in use", R"(\(r0_0 \+ 3\) % 4)", "r0_0 % 4", 0},
                      Mutant{"copies of the other operand do", R"(\(r0_0 \+ 3\) % 4)", "r0_0 % 4", 1},
                      Mutant{"copies overwrite what is used next", R"(\(r0_0 \+ 3\) % 4)", "(r0_0 + 1) % 4", 0},
                      Mutant{"copies of one step are never made", R"(if r0_0 < 3)", "if r0_0 < 2"},
                      Mutant{"copies go beyond the operands", R"(if r0_0 < 3)", "if r0_0 < 4"},
                      Mutant{"products use the step before", R"(r0_0 % 4 \* 512, 32)", "(r0_0 + 3) % 4 * 512, 32"},
                      Mutant{"products use the step after", R"(r0_0 % 4 \* 512, 1,)", "(r0_0 + 1) % 4 * 512, 1,"},
                      Mutant{"three versions of an operand instead of four", R"(% 4 \* 512)", "% 3 * 512", -1},
                      Mutant{"a step of the other operand is left out", R"(\+ 1536, 1, 8)", "+ 1024, 1, 8"},
                      Mutant{"warps end before their sums are made", R"(warp_barrier\(\))", "", 2},
                      Mutant{"sums do not begin with zero", R"(broadcast\(0\.0f, 2\))", "broadcast(1.0f, 2)"},
                      Mutant{"one row of sums begins late", R"(for (\w+) in 0\.\.8 thread\.y)",
                             "for $1 in 0..7 thread.y", 0}),
    name_of_mutant);

class TensorCoreGroupMutant : public ::testing::TestWithParam<std::tuple<bool, Mutant>> {};

TEST_P(TensorCoreGroupMutant, IsCaught) {
  const auto& [copies_tiles, mutant] = GetParam();
  const Copier copier = copies_tiles ? Copier::one_thread : Copier::all_threads;
  const Func& original = long_product_by_groups(copier).kernels[0].func;
  const std::string text = to_text(original), changed = mutated(text, mutant);
  ASSERT_TRUE(changed != text) << text;
  EXPECT_TRUE(test::is_caught(changed, original, near)) << changed;
}

INSTANTIATE_TEST_SUITE_P(
    All, TensorCoreGroupMutant,
    ::testing::Combine(
        ::testing::Bool(),
        ::testing::Values(
            Mutant{"nobody waits for products", R"(wait_products\(\d\))", "", -1},
            Mutant{"nobody waits for products in the loop", R"(wait_products\(1\))", ""},
            Mutant{"products are two steps behind", R"(wait_products\(1\))", "wait_products(2)"},
            Mutant{"nobody waits for the last products", R"(wait_products\(0\))", ""},
            Mutant{"the last products but one are waited for", R"(wait_products\(0\))", "wait_products(1)"},
            Mutant{"nobody waits for copies", R"(wait_copies\(1\))", ""},
            Mutant{"one group too many may be on its way", R"(wait_copies\(1\))", "wait_copies(2)"},
            Mutant{"the first group is never ended", R"(commit_copies\(\))", "", 0},
            Mutant{"threads do not meet in the loop", R"(barrier\(\)\n +warp)", "warp"},
            Mutant{"threads meet before they wait for copies", R"((wait_copies\(1\)\n +)(barrier\(\)\n))", "$2$1"},
            Mutant{"warps end before their sums are made", R"(warp_barrier\(\))", "", 2},
            Mutant{"copies overwrite what is in use", R"(\(r0_0 \+ 2\) % 4)", "r0_0 % 4", 0},
            Mutant{"copies overwrite what was in use", R"(\(r0_0 \+ 2\) % 4)", "(r0_0 + 3) % 4", 0},
            Mutant{"two versions of an operand instead of four", R"(% 4 \* 4096)", "% 2 * 4096", -1})),
    [](const auto& info) {
      return name_of_mutant({std::get<1>(info.param), info.index}) + (std::get<0>(info.param) ? "_of_tiles" : "");
    });

// Of the text of programs by who copies: they fail or give something else in the emulator.
class TensorCoreTextMutant : public ::testing::TestWithParam<std::tuple<Copier, Mutant>> {};

TEST_P(TensorCoreTextMutant, IsCaughtInTheEmulator) {
  const auto& [copier, mutant] = GetParam();
  const LoweredFunc& lowered = long_product_by_groups(copier);
  const std::string text = cuda::emit_cuda(lowered.kernels, with_groups().shared_bytes);
  const std::string changed = mutated(text, mutant);
  ASSERT_TRUE(changed != text) << text;
  // In a process of its own, for a launch that fails is the last one.
  EXPECT_EXIT(std::_Exit(is_caught_in_emulator(lowered, changed) ? 0 : 1), ::testing::ExitedWithCode(0), "") << changed;
}
std::string name_of_text_mutant(const ::testing::TestParamInfo<std::tuple<Copier, Mutant>>& info) {
  return name_of_mutant({std::get<Mutant>(info.param), info.index});
}

INSTANTIATE_TEST_SUITE_P(
    CopiesByThreads, TensorCoreTextMutant,
    ::testing::Combine(
        ::testing::Values(Copier::all_threads),
        ::testing::Values(Mutant{"registers are not fenced", R"(  tw_begin_products\(\);)", ""},
                          Mutant{"products are not committed", R"(  tw_commit_products\(\);)", ""},
                          Mutant{"products are not waited for", R"(  tw_wait_products<\d>\(\);)", "", -1},
                          Mutant{"the last products are not waited for", R"(  tw_wait_products<0>\(\);)", ""},
                          Mutant{"copies are not published", R"(  tw_publish_shared\(\);)", "", -1},
                          Mutant{"copies are published by some threads", R"(  tw_publish_shared\(\);)",
                                 "if (threadIdx.z) tw_publish_shared();", -1},
                          Mutant{"copies are published before they have landed",
                                 R"((  tw_wait_copies<1>\(\);)([^]*?)(tw_publish_shared\(\);))", "$3 $1$2"},
                          Mutant{"pieces are exchanged as in shorter rows", R"(16, 1024, 1\))", "16, 1024, 2)", 0},
                          Mutant{"rows are nearer than they are", R"(16, 1024, 1\))", "16, 512, 1)", 0},
                          Mutant{"steps along k are too short", R"(k \* 2)", "k * 1", 0})),
    name_of_text_mutant);

INSTANTIATE_TEST_SUITE_P(
    CopiesOfTiles, TensorCoreTextMutant,
    ::testing::Combine(
        ::testing::Values(Copier::one_thread),
        ::testing::Values(
            Mutant{"counters are not set up", R"(tw_tiles\.set_up\(\);)", ";"},
            Mutant{"one counter is not set up", R"(int i = 0; i < count; \+\+i\) tw_set_up)",
                   "int i = 1; i < count; ++i) tw_set_up"},
            Mutant{"counters are set up while others wait",
                   R"((tw_prefetch_map\(&tw_map_1\);\n +\}\n +)__syncthreads\(\);)", "$1"},
            Mutant{"nothing arrives", R"(if \(is_open && is_first_thread\) tw_arrive)", "if (false) tw_arrive"},
            Mutant{"all threads arrive", R"(if \(is_open && is_first_thread\) tw_arrive)", "if (is_open) tw_arrive"},
            Mutant{"no bytes are expected", R"(  tw_expect\(counter, bytes\);)", ""},
            Mutant{"fewer bytes are expected", R"(tw_expect\(counter, bytes\);)", "tw_expect(counter, bytes / 2);"},
            Mutant{"nobody waits for tiles", R"(  tw_tiles\.wait\(\);)", "", -1},
            Mutant{"the phase before is waited for", R"(u32 parity = 0;)", "u32 parity = 1;"},
            Mutant{"the phase never changes", R"(parity \^= 1)", "parity ^= 0"},
            Mutant{"the phase changes with each group", R"(if \(\+\+waited == count\) waited = 0, parity)",
                   "if (++waited == count) waited = 0; parity"},
            Mutant{"another counter is waited for", R"(begun = 0, waited = 0)", "begun = 1, waited = 0"},
            Mutant{"one counter too few", R"(tw_tile_groups<2> tw_tiles)", "tw_tile_groups<1> tw_tiles"},
            Mutant{"a box lies elsewhere", R"(\(int\)\(0\))", "(int)(8)", 0},
            Mutant{"a box comes from the other operand", R"(&tw_map_1, )", "&tw_map_0, ", 0})),
    name_of_text_mutant);

INSTANTIATE_TEST_SUITE_P(
    CopyingWarp, TensorCoreTextMutant,
    ::testing::Combine(
        ::testing::Values(Copier::own_warp),
        ::testing::Values(
            Mutant{"counters are set up while others wait",
                   R"((tw_prefetch_map\(&tw_map_1\);\n +\}\n +)__syncthreads\(\);)", "$1"},
            Mutant{"places are not waited for",
                   R"(while \(!tw_has_ended\(counters \+ count \+ at, parity \^ 1\)\) \{\})", ""},
            Mutant{"the phase before is waited for by who copies", R"(parity \^ 1\))", "parity)"},
            Mutant{"what comes is not waited for", R"(  tw_tiles\.wait\(\);)", "", -1},
            Mutant{"the phase before is waited for by who computes", R"(tw_has_ended\(counters \+ at, parity\))",
                   "tw_has_ended(counters + at, parity ^ 1)"},
            Mutant{"the phase never changes", R"(at = 0, parity \^= 1)", "at = 0"},
            Mutant{"products are waited for after their places are free",
                   R"((tw_wait_products<1>\(\);)(\s*)(tw_tiles\.release<1>\(\);))", "$3$2$1"},
            Mutant{"places are free before their products have ended", R"(tw_tiles\.release<1>)",
                   "tw_tiles.release<0>"},
            Mutant{"products are two steps behind", R"(tw_wait_products<1>)", "tw_wait_products<2>"},
            Mutant{"the last products are not waited for", R"(tw_wait_products<0>\(\);)", ""},
            Mutant{"uses are not counted", R"(tw_tiles\.use\(\);)", ""},
            Mutant{"nobody says that places are free", R"(if \(tw_elect\(\)\) tw_arrive\(counters \+ count)",
                   "if (false) tw_arrive(counters + count"},
            Mutant{"all threads say that places are free", R"(if \(tw_elect\(\)\) tw_arrive\(counters \+ count)",
                   "tw_arrive(counters + count"},
            Mutant{"other places are said to be free", R"(tw_arrive\(counters \+ count \+ used\))",
                   "tw_arrive(counters + count + (used + 1) % count)"},
            Mutant{"places are free when one warp has not used them", R"(tw_tiles\.set_up\(4\))", "tw_tiles.set_up(3)"},
            Mutant{"a warp more is waited for", R"(tw_tiles\.set_up\(4\))", "tw_tiles.set_up(5)"},
            Mutant{"a place is filled that is in use", R"(\+ 2\) % \(u32\)4)", "+ 1) % (u32)4", 0},
            Mutant{"all threads of the warp copy", R"((tw_warp == 4\) \{\n +)if \(tw_elect\(\)\))", "$1if (true)"},
            Mutant{"nothing arrives", R"(if \(!is_open\) return;\s+tw_arrive\(counters \+ at\);)",
                   "if (!is_open) return;"},
            Mutant{"no bytes are expected", R"(  tw_expect\(counter, bytes\);)", ""},
            Mutant{"a block makes its first tile twice", R"(, \(int\)\(\(\w+ \* 64\)\)\);)", ", 0);", -1})),
    name_of_text_mutant);

}  // namespace
}  // namespace tw
