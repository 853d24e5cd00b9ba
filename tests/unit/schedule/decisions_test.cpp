// What templates leave open: asked by name, decided or analytic, never silently something else.
#include <gtest/gtest.h>

#include "runtime/error.h"
#include "schedule/schedule.h"
#include "tests/unit/sample_funcs.h"

namespace tw {
namespace {

const std::vector<Candidate> candidates{{{4}, 2.0}, {{8}, 1.0}, {{16}, 1.5}};

ErrorCode code_of(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return {};
}

TEST(Decisions, text_comes_back) {
  const Decisions decisions{{"tile", {14, 2}}, {"strip_1", {-3}}, {"rows", {0, 1, 2}}};
  EXPECT_EQ(to_text(decisions), "rows=0x1x2 strip_1=-3 tile=14x2");
  EXPECT_EQ(parse_decisions(to_text(decisions)), decisions);
  EXPECT_TRUE(parse_decisions("").empty());
}

TEST(Decisions, other_text_is_refused) {
  for (const char* bad :
       {"tile", "tile=", "=4", "tile=4x", "tile=x4", "tile=4 tile=4", "tile=4  rows=2", "Tile=4", "tile=4;rows=2",
        " tile=4", "tile=99999999999999999999", "tile=1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1"})
    EXPECT_EQ(code_of([&] { parse_decisions(bad); }), ErrorCode::text) << bad;
}

TEST(Decisions, analysis_decides_what_nobody_did) {
  Schedule schedule(test::matmul(4, 4, 4));
  EXPECT_EQ(schedule.decide("tile", candidates, {8}), Choice{8});
  ASSERT_EQ(schedule.asked().size(), 1u);
  EXPECT_EQ(schedule.asked()[0].name, "tile");
  EXPECT_EQ(schedule.asked()[0].analytic, 1u);
  EXPECT_EQ(schedule.asked()[0].chosen, 1u);
  EXPECT_TRUE(schedule.trace().instructions.empty());
}

TEST(Decisions, what_was_decided_holds) {
  Schedule schedule(test::matmul(4, 4, 4), {{"tile", {16}}, {"tile_1", {4}}});
  EXPECT_EQ(schedule.decide("tile", candidates, {8}), Choice{16});
  EXPECT_EQ(schedule.asked()[0].relative_cost(), 1.5);
  EXPECT_EQ(schedule.decide("tile", candidates, {8}), Choice{4});  // the second time it is tile_1
  EXPECT_EQ(schedule.decide("tile", candidates, {8}), Choice{8});
  schedule.require_all_asked();
}

TEST(Decisions, stale_ones_are_errors) {
  Schedule schedule(test::matmul(4, 4, 4), {{"tile", {5}}, {"rows", {1}}});
  EXPECT_EQ(code_of([&] { schedule.decide("tile", candidates, {8}); }), ErrorCode::schedule);
  EXPECT_TRUE(schedule.asked().empty());
  EXPECT_EQ(code_of([&] { schedule.require_all_asked(); }), ErrorCode::schedule);
}

TEST(Decisions, travel_with_copies) {
  Schedule original(test::matmul(4, 4, 4), {{"tile", {4}}});
  Schedule attempt = original;
  attempt.decide("tile", candidates, {8});
  EXPECT_TRUE(original.asked().empty());  // an attempt that is dropped has asked nothing
  EXPECT_EQ(original.decide("tile", candidates, {8}), Choice{4});
}

}  // namespace
}  // namespace tw
