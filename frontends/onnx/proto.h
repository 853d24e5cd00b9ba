// The messages of onnx.proto that the importer reads, as plain structs.  Strings and raw tensor data are views into the
// model's bytes, which must outlive them.  Reading is by protozero: a header-only reader, so no protobuf library, no
// generated code and no symbols that could clash with another protobuf in the process.
//
// parse_model() throws Error(malformed_model) on broken wire data and Error(limit) beyond the limits below; everything
// that it returns is within them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/inputs.h"

namespace tw::frontends::onnx {

// Limits of what is read.
inline constexpr size_t max_model_bytes = size_t{2} << 30;  // protobuf's own
inline constexpr int max_graph_depth = 32;                  // of graphs within graphs
inline constexpr int64_t max_nodes = 250'000;               // of the whole model, and after inlining
inline constexpr int64_t max_messages = 4'000'000;          // of all kinds
inline constexpr size_t max_rank = 32;

// Of TensorProto.DataType.
std::optional<DType> to_dtype(int64_t data_type);  // nothing: a type that we do not have
inline constexpr int32_t text_type = 8;            // strings
std::string data_type_name(int64_t data_type);     // "float8e4m3fn"
std::optional<DType> dtype_named(std::string_view name);

struct StringEntry {
  std::string_view key, value;
};

struct Tensor {
  std::string_view name;
  std::vector<int64_t> dims;
  int32_t data_type = 0;
  // At most one of these holds the elements.
  std::vector<float> float_data;
  std::vector<int32_t> int32_data;
  std::vector<int64_t> int64_data;
  std::vector<double> double_data;
  std::vector<uint64_t> uint64_data;
  std::vector<std::string_view> string_data;
  std::optional<std::string_view> raw_data;
  std::vector<StringEntry> external_data;
  bool is_external = false;
};

enum class ValueKind { unknown, tensor, sequence, optional, other };  // other: maps, sparse tensors

struct ValueInfo {
  std::string_view name;
  ValueKind kind = ValueKind::unknown;
  int32_t element_type = 0;
  std::optional<std::vector<Dimension>> shape;
  std::vector<ValueInfo> element;  // one: what is in a sequence or an optional value
};

struct Graph;

enum class AttributeType : int32_t {
  undefined = 0,
  float_ = 1,
  int_ = 2,
  string = 3,
  tensor = 4,
  graph = 5,
  floats = 6,
  ints = 7,
  strings = 8,
  tensors = 9,
  graphs = 10,
  sparse_tensor = 11,
  sparse_tensors = 12,
  type_proto = 13,
  type_protos = 14,
};

struct Attribute {
  std::string_view name, reference;  // reference: to an attribute of the enclosing function
  AttributeType type = AttributeType::undefined;
  float float_value = 0;
  int64_t int_value = 0;
  std::string_view string_value;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::shared_ptr<const Tensor> tensor;
  std::shared_ptr<const Graph> graph;
};

struct Node {
  std::string_view name, op_type, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<Attribute> attributes;
  const Attribute* find(std::string_view attribute) const;  // null: absent
};

struct Graph {
  std::string_view name;
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  std::vector<ValueInfo> inputs, outputs, value_infos;
  bool has_sparse_initializers = false;
};

struct OpsetId {
  std::string_view domain;
  int64_t version = 0;
};

struct Function {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs, attributes;
  std::vector<Attribute> attribute_defaults;
  std::vector<Node> nodes;
  std::vector<OpsetId> opsets;
};

struct Model {
  int64_t ir_version = 0;
  std::string_view producer_name, producer_version;
  std::vector<OpsetId> opsets;
  Graph graph;
  std::vector<Function> functions;
  std::vector<StringEntry> metadata;
};

Model parse_model(std::span<const std::byte> bytes);

}  // namespace tw::frontends::onnx
