// What frontends share, used as a frontend of no format would.
#include <gtest/gtest.h>

#include "frontends/emit.h"
#include "frontends/inputs.h"
#include "frontends/report.h"
#include "relay_ir/verify.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends {
namespace {

TEST(Builder, FoldsWhatIsKnown) {
  Import import;
  const SourceNode node{"Toy", "toy", {}};
  Builder b(import, node);
  const ValueId sum = b.emit("add", {emit_scalar(b, i64, 2), emit_scalar(b, i64, 3)});
  ASSERT_NE(b.constant(sum), nullptr);
  EXPECT_EQ(b.constant(sum)->get_int(0), 5);
  EXPECT_TRUE(import.graph.nodes.empty());
}

TEST(Builder, KnowsSizesThatDependOnOpenDimensions) {
  Import import;
  OpenDimensions dimensions;
  const ImportOptions options;
  const std::vector<DeclaredInput> declared{{"x", {{{{}, "n"}, {3, ""}}}}};
  const ValueId x = Inputs(import, dimensions, options, declared).add(declared[0], f32);
  EXPECT_EQ(to_string(import.graph.values[x].type), "f32[n, 3]");
  const SourceNode first{"Shape", "shape", {x}};
  Builder b(import, first);
  const ValueId twice = b.emit("multiply", {b.emit_sizes(b.type(x).shape, {2}), b.emit_constant(int_array({2, 2}))});
  const SourceNode second{"Reshape", "reshape", {x, twice}};
  const std::vector<Expr> dims = Builder(import, second).known_dims(1);
  ASSERT_EQ(dims.size(), 2u);
  EXPECT_EQ(to_text(dims[0]), "n * 2");
  EXPECT_EQ(as_int(dims[1]), 6);
  const bool is_done = import.attempt(second, true, [&] { Builder(import, second).constant_ints(1); });
  EXPECT_FALSE(is_done);
  EXPECT_NE(import.refusals.at(0).why.find("fix `n * 2`"), std::string::npos) << import.refusals[0].why;
}

TEST(Builder, CollectsAllThatIsRefused) {
  const auto read = [] {
    Import import;
    OpenDimensions dimensions;
    import.format = "toys";
    const std::vector<DeclaredInput> declared{{"x", {{{2, ""}}}}};
    const ValueId x = Inputs(import, dimensions, {}, declared).add(declared[0], f32);
    for (const char* name : {"a", "b", "c"}) {
      const SourceNode node{"Spin", name, {x}};
      import.count(node.op);
      const bool is_done = import.attempt(node, true, [&] {
        Builder b(import, node);
        if (node.name != "b") b.refuse("backwards");
        import.graph.outputs.push_back(b.emit("relu", {b.input(0)}));
      });
      EXPECT_EQ(is_done, node.name == "b");
    }
    import.graph.output_names = {"y"};
    return import;
  };
  const Import import = with_file_name("file.toy", read);
  verify(import.graph);
  EXPECT_NE(explain(import).find("file.toy: toys, 3 nodes, 33.3 % covered"), std::string::npos) << explain(import);
  try {
    finish(import);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    const std::string text = error.what();
    EXPECT_NE(text.find("1 operator in 2 nodes are not supported"), std::string::npos) << text;
    EXPECT_NE(text.find("a (f32[2]), c (f32[2]): backwards"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tw::frontends
