// What every pass goes through: skipped by name, and named where it fails.
#include "tensor_ir/pass_scope.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "relay_ir/compile/compile.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "runtime/error.h"

namespace tw::relay {
namespace {

// What an Error says; nothing where there is none.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Passes of graphs as of Funcs; a name that is none of them is a slip.
TEST(Passes, AreSkippedByName) {
  const Graph graph = parse_graph("graph g (x: f32[64]) {\n  a = exp(x)\n  b = exp(x)\n  y = add(a, b)\n  return y\n}");
  const auto nodes = [&](const char* skipped) {
    setenv("TW_SKIP", skipped, 1);
    const Target target = parse_target("cpu");
    compile(graph, target, {});
    return run_passes(graph, {target}).nodes.size();
  };
  EXPECT_LT(nodes(""), nodes("eliminate_common"));
  const std::string slip = refusal([&] { nodes("eliminate_common,unroll_lops,hoist_guards"); });
  unsetenv("TW_SKIP");
  EXPECT_NE(slip.find("TW_SKIP: `unroll_lops` is no optional pass"), std::string::npos) << slip;
}

// An error says in which pass of which program it came up, a broken invariant what the program was.
TEST(Passes, AreNamedWhereTheyFail) {
  const auto refuse = []() { throw Error(ErrorCode::lower, "no"); };
  const PassSubject subject{"graph", "g", [] { return std::string("its text"); }, refuse};
  const std::string failed =
      refusal([&] { run_in_scope("refuse", subject, [&]() -> PassSubject { return refuse(), subject; }); });
  EXPECT_NE(failed.find("no\n  in pass refuse of graph `g`"), std::string::npos) << failed;
  const char* verifies = std::getenv("TW_VERIFY");
  const std::string before = verifies ? verifies : "";
  setenv("TW_VERIFY", "1", 1);
  const std::string broken = refusal([&] { run_in_scope("break", subject, [&] { return subject; }); });
  setenv("TW_VERIFY", before.c_str(), 1);
  EXPECT_NE(broken.find("pass break: "), std::string::npos) << broken;
  EXPECT_NE(broken.find("before the pass:\nits text"), std::string::npos) << broken;
}

}  // namespace
}  // namespace tw::relay
