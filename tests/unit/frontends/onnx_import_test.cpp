// ONNX models, good and bad, through the importer.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "frontends/onnx/import.h"
#include "frontends/onnx/rules.h"
#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "tests/unit/frontends/onnx_builder.h"

namespace tw::frontends {
namespace {

using namespace tw::test;

Graph import(const Message& model, const ImportOptions& options = {}) {
  Graph graph = import_onnx(bytes_of(model), options);
  verify(graph);
  return graph;
}

// The code and whole text of what importing throws.
void expect_error(const Message& model, ErrorCode code, const std::vector<std::string>& parts,
                  const ImportOptions& options = {}) {
  try {
    import(model, options);
    FAIL() << "imported, though it should not be";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

GraphParts relu_parts() {
  return {{node("Relu", {"x"}, {"y"})}, {}, {value_info("x", 1, {2, 3})}, {value_info("y", 1, {2, 3})}};
}

TEST(OnnxImport, CoversTheOperatorsThatWePromise) {
  std::set<std::string> names;
  for (const onnx::Rule* rule : onnx::all_rules()) names.insert(rule->domain + ":" + rule->op_type);
  EXPECT_GE(names.size(), 130u);
}

TEST(OnnxImport, TakesNodesInAnyOrder) {
  GraphParts parts = relu_parts();
  parts.nodes = {node("Add", {"a", "b"}, {"y"}), node("Neg", {"a"}, {"b"}), node("Relu", {"x"}, {"a"})};
  const Graph graph = import(model(parts));
  ASSERT_EQ(graph.inputs.size(), 1u);
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.output_name(0), "y");
  EXPECT_EQ(to_string(graph.values[graph.outputs[0]].type), "f32[2, 3]");
  EXPECT_EQ(graph.nodes.size(), 3u);
}

TEST(OnnxImport, FindsCyclesDuplicatesAndMissingNames) {
  GraphParts parts = relu_parts();
  parts.nodes = {node("Add", {"x", "b"}, {"a"}, {}, "first"), node("Neg", {"a"}, {"b"}, {}, "second"),
                 node("Relu", {"a"}, {"y"})};
  expect_error(model(parts), ErrorCode::malformed_model, {"cycle", "`first`", "`second`"});
  parts = relu_parts();
  parts.nodes.push_back(node("Neg", {"x"}, {"y"}, {}, "again"));
  expect_error(model(parts), ErrorCode::malformed_model, {"`y` is defined twice", "`again`"});
  parts = relu_parts();
  parts.nodes = {node("Relu", {"nowhere"}, {"y"}, {}, "lost")};
  expect_error(model(parts), ErrorCode::malformed_model, {"`lost`", "`nowhere`", "nothing defines"});
  parts = relu_parts();
  parts.outputs = {value_info("z", 1, {2, 3})};
  expect_error(model(parts), ErrorCode::malformed_model, {"output `z`"});
  parts = relu_parts();
  parts.outputs.clear();
  expect_error(model(parts), ErrorCode::malformed_model, {"no outputs"});
  parts = relu_parts();
  parts.outputs = {value_info("y", 7, {2, 3})};
  expect_error(model(parts), ErrorCode::malformed_model, {"declared as int64"});
}

TEST(OnnxImport, RefusesWhatIsNoModel) {
  expect_error("", ErrorCode::malformed_model, {"empty"});
  expect_error("hello, world", ErrorCode::malformed_model, {"the model: "});
  expect_error(std::string(100, '\xff'), ErrorCode::malformed_model, {});
  const Message whole = model(relu_parts());
  for (size_t size = 1; size < whole.size(); ++size) {
    // A cut may leave a smaller valid file; then it must import or be refused in words.
    try {
      import(whole.substr(0, size));
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << size << ": " << error.what();
    }
  }
}

TEST(OnnxImport, ListsEverythingThatIsNotSupportedAtOnce) {
  GraphParts parts = relu_parts();
  parts.nodes = {node("Frobnicate", {"x"}, {"a"}, {}, "f1"), node("Frobnicate", {"x"}, {"b"}, {}, "f2"),
                 node("Quux", {"x"}, {"c"}, {}, "q", "com.example"), node("Add", {"a", "b"}, {"d"}),
                 node("Relu", {"x"}, {"y"})};
  expect_error(model(parts), ErrorCode::unsupported,
               {"2 operators in 3 nodes are not supported (opset 17, 5 nodes, 40.0 % covered)", "Frobnicate",
                "2 nodes:", "f1 (f32[2, 3]), f2", "com.example.Quux", "help:"});
  const Message data = model(parts);
  const std::string text = explain(read_onnx(bytes_of(data)));
  EXPECT_NE(text.find("40.0 % covered"), std::string::npos) << text;
  EXPECT_NE(text.find("not supported:"), std::string::npos) << text;
}

TEST(OnnxImport, KnowsItsOpsets) {
  expect_error(model(relu_parts(), 400), ErrorCode::unsupported, {"newer than"});
  EXPECT_NO_THROW(import(model(relu_parts(), 7)));
}

TEST(OnnxImport, ReadsTensorsOfEveryForm) {
  GraphParts parts;
  Message typed = tensor_head("typed", 10, {2});  // f16 as bits in int32_data
  protozero::pbf_writer(typed).add_int32(5, 0x3c00), protozero::pbf_writer(typed).add_int32(5, 0xc000);
  parts.initializers = {typed, raw_tensor<uint8_t>("flags", 9, {3}, {0, 7, 1})};
  parts.nodes = {node("Identity", {"x"}, {"y"})};
  parts.inputs = {value_info("x", 1, {1})};
  parts.outputs = {value_info("typed", 10, {2}), value_info("flags", 9, {3}), value_info("y", 1, {1})};
  const Graph graph = import(model(parts));
  const NDArray& halves = *graph.values[graph.outputs[0]].constant;
  EXPECT_EQ(halves.dtype(), f16);
  EXPECT_EQ(halves.get_float(0), 1);
  EXPECT_EQ(halves.get_float(1), -2);
  const NDArray& flags = *graph.values[graph.outputs[1]].constant;
  EXPECT_EQ(flags.as<uint8_t>()[1], 1);
}

TEST(OnnxImport, ChecksSizesBeforeItAllocates) {
  auto with = [](const Message& tensor) {
    GraphParts parts = relu_parts();
    parts.initializers = {tensor};
    parts.nodes = {node("Add", {"x", "w"}, {"y"})};
    return model(parts);
  };
  expect_error(with(raw_tensor<float>("w", 1, {4}, {1, 2, 3})), ErrorCode::malformed_model, {"`w`", "12 bytes", "16"});
  expect_error(with(tensor_head("w", 1, {1 << 30, 1 << 30})), ErrorCode::limit, {"`w`"});
  expect_error(with(tensor_head("w", 1, {int64_t{1} << 40})), ErrorCode::malformed_model, {"0 elements"});
  expect_error(with(tensor_head("w", 1, {-3})), ErrorCode::malformed_model, {"negative"});
  expect_error(with(tensor_head("w", 1, std::vector<int64_t>(40, 1))), ErrorCode::limit, {"40 dimensions"});
  expect_error(with(tensor_head("w", 8, {1})), ErrorCode::malformed_model, {"0 strings"});
}

TEST(OnnxImport, KeepsExternalDataInsideTheFolder) {
  const auto folder = std::filesystem::temp_directory_path() / ("tw_import_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "model");
  auto write = [](const std::filesystem::path& path, const std::vector<float>& values) {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  };
  write(folder / "model" / "weights.bin", {9, 1, 2, 3});
  write(folder / "secret.bin", {4, 5, 6});
  std::filesystem::create_symlink("../secret.bin", folder / "model" / "link.bin");
  auto with = [](const std::string& location, const std::string& offset = "4", const std::string& length = "12") {
    GraphParts parts = relu_parts();
    parts.initializers = {external_tensor("w", {3}, {{"location", location}, {"offset", offset}, {"length", length}})};
    parts.nodes = {node("Add", {"x", "w"}, {"y"})};
    return model(parts);
  };
  ImportOptions options;
  options.folder = folder / "model";
  const Graph graph = import(with("weights.bin"), options);
  const NDArray& weights = *graph.values[graph.nodes[0].inputs[1]].constant;
  EXPECT_EQ(weights.get_float(0), 1);
  EXPECT_EQ(weights.get_float(2), 3);
  const ErrorCode code = ErrorCode::external_data;
  expect_error(with("../secret.bin", "0"), code, {"outside"}, options);
  expect_error(with((folder / "secret.bin").string(), "0"), code, {"outside"}, options);
  expect_error(with("link.bin", "0"), code, {"link"}, options);
  expect_error(with("nothing.bin"), code, {"does not exist"}, options);
  expect_error(with("."), code, {"not a file"}, options);
  expect_error(with("weights.bin", "8"), code, {"ends before"}, options);
  expect_error(with("weights.bin", "18446744073709551615"), code, {"ends before"}, options);
  expect_error(with("weights.bin", "4", "8"), code, {"8 bytes"}, options);
  expect_error(with("weights.bin", "-4"), code, {"numbers"}, options);
  expect_error(with("weights.bin"), code, {"without a folder"});
  std::filesystem::remove_all(folder);
}

TEST(OnnxImport, TakesBranchesOnKnownConditions) {
  auto branch = [](const std::string& op) {
    return graph({{node(op, {"x"}, {"r"})}, {}, {}, {value_info("r", 1, {2, 3})}});
  };
  GraphParts parts = relu_parts();
  parts.initializers = {raw_tensor<uint8_t>("yes", 9, {}, {1})};
  parts.nodes = {node("If", {"yes"}, {"y"},
                      {attribute_graph("then_branch", branch("Neg")), attribute_graph("else_branch", branch("Abs"))})};
  const Graph taken = import(model(parts));
  ASSERT_EQ(taken.nodes.size(), 1u);
  EXPECT_EQ(taken.nodes[0].op->name, "negate");
  // An optional input that is absent is none that a branch takes from around it.
  const auto clip = graph({{node("Clip", {"x", "", "most"}, {"r"})}, {}, {}, {value_info("r", 1, {2, 3})}});
  parts.nodes = {
      node("If", {"yes"}, {"y"}, {attribute_graph("then_branch", clip), attribute_graph("else_branch", clip)})};
  parts.initializers.push_back(raw_tensor<float>("most", 1, {}, {1}));
  EXPECT_EQ(import(model(parts)).nodes.at(0).op->name, "clip");
  parts.inputs.push_back(value_info("yes", 9, {}));
  parts.initializers.erase(parts.initializers.begin());
  // A condition that a run decides leaves both.
  const Graph both = import(model(parts));
  ASSERT_EQ(both.nodes.size(), 1u);
  EXPECT_EQ(both.nodes[0].op->name, "branch");
  EXPECT_EQ(both.nodes[0].regions.size(), 2u);
}

GraphParts split_parts() {
  GraphParts parts;
  parts.initializers = {raw_tensor<int64_t>("last", 7, {}, {-1}), raw_tensor<int64_t>("far", 7, {}, {3})};
  parts.nodes = {node("SplitToSequence", {"x"}, {"s"}, {attribute_int("axis", 1)}, "split")};
  parts.inputs = {value_info("x", 1, {2, 3})};
  return parts;
}

TEST(OnnxImport, KnowsWhatIsInSequences) {
  GraphParts parts = split_parts();
  parts.nodes.push_back(node("SequenceAt", {"s", "last"}, {"y"}));
  parts.nodes.push_back(node("SequenceLength", {"s"}, {"n"}));
  parts.outputs = {value_info("y", 1, {2, 1}), value_info("n", 7, {}), list_info("s", 4)};
  const Graph graph = import(model(parts));
  ASSERT_EQ(graph.outputs.size(), 5u);
  EXPECT_EQ(to_string(graph.values[graph.outputs[0]].type), "f32[2, 1]");
  EXPECT_EQ(graph.values[graph.outputs[1]].constant->get_int(0), 3);
  EXPECT_EQ(graph.output_name(4), "s.2");
  EXPECT_EQ(graph.outputs[4], graph.outputs[0]);
  parts.outputs.push_back(value_info("s.1", 1, {2, 1}));
  parts.nodes.push_back(node("Identity", {"x"}, {"s.1"}));
  expect_error(model(parts), ErrorCode::malformed_model, {"two outputs are called `s.1`"});
}

TEST(OnnxImport, KnowsWhatOutputsAreMadeOf) {
  GraphParts parts;
  parts.inputs = {value_info("x", 1, {6}), value_info("size", 7, {})};
  parts.nodes = {node("SplitToSequence", {"x", "size"}, {"s"}), node("SequenceEmpty", {}, {"e"}),
                 node("Optional", {}, {"o"}), node("Optional", {"x"}, {"there"})};
  parts.outputs = {list_info("e", 4), list_info("s", 4), list_info("o", 9), list_info("there", 9)};
  const Graph graph = import(model(parts));
  EXPECT_NE(to_text(graph).find("return e = sequence(), s = packed(x, "), std::string::npos);
  EXPECT_NE(to_text(graph).find(", o = optional(), there = x"), std::string::npos);
  EXPECT_EQ(graph.output_name(1), "s.sizes");
}

TEST(OnnxImport, SaysWhatIsWrongWithASequence) {
  GraphParts parts = split_parts();
  const auto with = [&](const Message& last, const Message& output) {
    GraphParts result = parts;
    result.nodes.push_back(last);
    result.outputs = {output};
    return model(result);
  };
  const Message y = value_info("y", 1, {2, 1});
  expect_error(with(node("SequenceAt", {"s", "far"}, {"y"}), y), ErrorCode::shape, {"position 3 in a sequence of 3"});
  expect_error(with(node("Add", {"s", "x"}, {"y"}), y), ErrorCode::malformed_model,
               {"`Add_1`", "input 0 is no tensor"});
  expect_error(with(node("Concat", {"x", "s"}, {"y"}, {attribute_int("axis", 0)}), y), ErrorCode::malformed_model,
               {"input 1 is no tensor"});
  expect_error(with(node("SequenceLength", {"x"}, {"y"}), y), ErrorCode::malformed_model, {"input 0 is no sequence"});
  expect_error(with(node("Identity", {"s"}, {"y"}), y), ErrorCode::malformed_model, {"declared as float", "no tensor"});
  expect_error(with(node("SequenceConstruct", {"x", "last"}, {"y"}), list_info("y", 4)), ErrorCode::shape,
               {"tensors of different types"});
  parts.inputs.push_back(value_info("at", 7, {2}));
  expect_error(with(node("SequenceAt", {"s", "at"}, {"y"}), y), ErrorCode::shape, {"a position is one number"});
  parts.inputs.back() = list_info("t", 4);
  expect_error(with(node("SequenceAt", {"t", "last"}, {"y"}), y), ErrorCode::unsupported,
               {"a sequence, whose length is not known"});
  parts.inputs.back() = list_info("t", 9);
  expect_error(with(node("OptionalGetElement", {"t"}, {"y"}), y), ErrorCode::unsupported,
               {"a value that is no tensor"});
}

TEST(OnnxImport, InlinesFunctionsWithTheirAttributes) {
  const Message body = function(
      "my", "ScaledElu", {"a"}, {"b"}, {"slope"},
      {node("LeakyRelu", {"a"}, {"t"}, {attribute_reference("alpha", "slope", 1)}), node("Neg", {"t"}, {"b"})});
  GraphParts parts = relu_parts();
  parts.nodes = {node("ScaledElu", {"x"}, {"y"}, {attribute_float("slope", 0.25f)}, "call", "my")};
  const Graph graph = import(model(parts, 17, {body}, {"my"}));
  EXPECT_EQ(graph.nodes.back().op->name, "negate");
  EXPECT_EQ(graph.output_name(0), "y");
  // A function that calls itself ends at a limit.
  const Message endless =
      function("my", "ScaledElu", {"a"}, {"b"}, {}, {node("ScaledElu", {"a"}, {"b"}, {}, "again", "my")});
  expect_error(model(parts, 17, {endless}, {"my"}), ErrorCode::limit, {"nested"});
}

TEST(OnnxImport, FixesDimensionsByNameInAllInputs) {
  GraphParts parts;
  parts.inputs = {value_info("x", 1, {"n", 3}), value_info("z", 1, {"n", 3})};
  parts.nodes = {node("Add", {"x", "z"}, {"y"})};
  parts.outputs = {value_info("y", 1, {"n", 3})};
  EXPECT_EQ(import(model(parts)).symbols.size(), 1u);
  ImportOptions options;
  options.shapes["x"] = {5, 3};
  const Graph graph = import(model(parts), options);
  EXPECT_EQ(to_string(graph.values[graph.inputs[1]].type), "f32[5, 3]");
  options.shapes["z"] = {6, 3};
  expect_error(model(parts), ErrorCode::shape, {"`n` is 5 elsewhere, here 6"}, options);
  options.shapes = {{"x", {5, 4}}};
  expect_error(model(parts), ErrorCode::shape, {"node `Add_0`", "dimension 1 of `x` from 3 to 4"}, options);
  options.shapes["z"] = {-1, 4};
  EXPECT_EQ(to_string(import(model(parts), options).values[1].type), "f32[5, 4]");
  options.shapes = {{"x", {5}}};
  expect_error(model(parts), ErrorCode::shape, {"has 2 dimensions"}, options);
  options.shapes = {{"w", {5}}};
  expect_error(model(parts), ErrorCode::shape, {"the inputs are `x`, `z`"}, options);
}

TEST(OnnxImport, FoldsShapeArithmetic) {
  GraphParts parts;
  parts.inputs = {value_info("x", 1, {2, 3, 4})};
  parts.initializers = {raw_tensor<int64_t>("zero", 7, {}, {0}), raw_tensor<int64_t>("minus", 7, {1}, {-1}),
                        raw_tensor<int64_t>("axes", 7, {1}, {0})};
  parts.nodes = {
      node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"n"}), node("Unsqueeze", {"n", "axes"}, {"n1"}),
      node("Concat", {"n1", "minus"}, {"target"}, {attribute_int("axis", 0)}), node("Reshape", {"x", "target"}, {"y"})};
  parts.outputs = {value_info("y", 1, {2, 12})};
  const Graph graph = import(model(parts));
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(to_string(graph.values[graph.outputs[0]].type), "f32[2, 12]");
}

TEST(OnnxImport, NamesTheNodeOfAShapeError) {
  GraphParts parts = relu_parts();
  parts.inputs.push_back(value_info("z", 1, {2, 4}));
  parts.nodes = {node("Add", {"x", "z"}, {"y"}, {}, "sum")};
  expect_error(model(parts), ErrorCode::shape, {"the model: ", "`sum`", "f32[2, 3]", "f32[2, 4]"});
}

TEST(OnnxImport, LimitsListsOfSizesThatARunComputes) {
  GraphParts parts;
  parts.inputs = {value_info("x", 1, {2, 3}), value_info("sizes", 7, {1 << 30})};
  parts.outputs = {value_info("y", 1, {2, 3})};
  for (const char* op : {"Reshape", "Expand", "Unsqueeze", "ReduceSum"}) {
    parts.nodes = {node(op, {"x", "sizes"}, {"y"})};
    expect_error(model(parts), ErrorCode::limit, {op, "a list of 1073741824", "the limit is 64"});
  }
}

TEST(OnnxImport, LimitsNesting) {
  Message inner = graph({{node("Relu", {"x"}, {"r"})}, {}, {}, {value_info("r", 1, {2, 3})}});
  for (int i = 0; i < 200; ++i) {
    inner = graph(
        {{node("If", {"c"}, {"r"}, {attribute_graph("then_branch", inner)})}, {}, {}, {value_info("r", 1, {2, 3})}});
  }
  GraphParts parts = relu_parts();
  parts.nodes = {node("If", {"x"}, {"y"}, {attribute_graph("then_branch", inner)})};
  expect_error(model(parts), ErrorCode::limit, {"nested"});
}

}  // namespace
}  // namespace tw::frontends
