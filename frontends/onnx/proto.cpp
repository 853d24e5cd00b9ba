#include "frontends/onnx/proto.h"

#include <bit>
#include <stdexcept>

// Field access is guarded by wire types below, so this never fires; if it did it must be an error and no abort.
#define protozero_assert(x) ((x) ? (void)0 : throw std::logic_error("protozero: " #x))
#include <protozero/pbf_reader.hpp>

namespace tw::frontends::onnx {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

constexpr uint32_t varint(uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::varint);
}
constexpr uint32_t fixed32(uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::fixed32);
}
constexpr uint32_t fixed64(uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::fixed64);
}
constexpr uint32_t bytes(uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::length_delimited);
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int length = lead < 0x80                   ? 1
                       : lead >= 0xc2 && lead < 0xe0 ? 2
                       : (lead & 0xf0) == 0xe0       ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (int k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

// A field of a message, by its number and wire type, and what is done when it comes.
template <class F>
struct Field {
  uint32_t tag;
  F read;
};

// Fields may come in any order and number; those that are not listed are skipped.
template <class... F>
void read(pbf_reader& message, const Field<F>&... fields) {
  while (message.next()) {
    const bool is_listed = ((message.tag_and_type() == fields.tag && (fields.read(), true)) || ...);
    if (!is_listed) message.skip();
  }
}

// Reads messages; one method a message of onnx.proto, its fields in the order of their numbers there.
class Reader {
 public:
  Model model(pbf_reader message) {
    Model result;
    read(message, Field{varint(1), [&] { result.ir_version = message.get_int64(); }},
         Field{bytes(2), [&] { result.producer_name = text(message); }},
         Field{bytes(3), [&] { result.producer_version = text(message); }},
         Field{bytes(7), [&] { result.graph = graph(message.get_message(), 1), has_graph_ = true; }},
         Field{bytes(8), [&] { result.opsets.push_back(opset(message.get_message())); }},
         Field{bytes(14), [&] { result.metadata.push_back(string_entry(message.get_message())); }},
         Field{bytes(25), [&] { result.functions.push_back(function(message.get_message())); }});
    if (!has_graph_) malformed("the file holds no graph: is it an ONNX model?");
    return result;
  }

 private:
  [[noreturn]] static void malformed(const std::string& why) { throw Error(ErrorCode::malformed_model, why); }

  void count_message() {
    if (++messages_ > max_messages) {
      throw Error(ErrorCode::limit, "more than " + std::to_string(max_messages) + " parts in the model");
    }
  }

  std::string_view view(pbf_reader& message) {
    count_message();
    const auto data = message.get_view();
    return {data.data(), data.size()};
  }
  std::string_view text(pbf_reader& message) {
    const std::string_view result = view(message);
    if (!is_utf8(result)) malformed("a name is not valid UTF-8");
    return result;
  }

  // Repeated numbers come packed, or one by one from old writers.
  template <class T, class Range>
  static void append(std::vector<T>& to, const Range& range) {
    for (auto i = range.begin(); i != range.end(); ++i) to.push_back(static_cast<T>(*i));
  }

  OpsetId opset(pbf_reader message) {
    count_message();
    OpsetId result;
    read(message, Field{bytes(1), [&] { result.domain = text(message); }},
         Field{varint(2), [&] { result.version = message.get_int64(); }});
    return result;
  }

  StringEntry string_entry(pbf_reader message) {
    count_message();
    StringEntry result;
    read(message, Field{bytes(1), [&] { result.key = view(message); }},
         Field{bytes(2), [&] { result.value = view(message); }});
    return result;
  }

  Function function(pbf_reader message) {
    count_message();
    Function result;
    read(message, Field{bytes(1), [&] { result.name = text(message); }},
         Field{bytes(4), [&] { result.inputs.push_back(text(message)); }},
         Field{bytes(5), [&] { result.outputs.push_back(text(message)); }},
         Field{bytes(6), [&] { result.attributes.push_back(text(message)); }},
         Field{bytes(7), [&] { result.nodes.push_back(node(message.get_message(), 1)); }},
         Field{bytes(9), [&] { result.opsets.push_back(opset(message.get_message())); }},
         Field{bytes(10), [&] { result.domain = text(message); }},
         Field{bytes(11), [&] { result.attribute_defaults.push_back(attribute(message.get_message(), 1)); }},
         Field{bytes(13), [&] { result.overload = text(message); }});
    return result;
  }

  Graph graph(pbf_reader message, int depth) {
    count_message();
    if (depth > max_graph_depth) {
      throw Error(ErrorCode::limit, "graphs are nested more than " + std::to_string(max_graph_depth) + " deep");
    }
    Graph result;
    read(message, Field{bytes(1), [&] { result.nodes.push_back(node(message.get_message(), depth)); }},
         Field{bytes(2), [&] { result.name = text(message); }},
         Field{bytes(5), [&] { result.initializers.push_back(tensor(message.get_message())); }},
         Field{bytes(11), [&] { result.inputs.push_back(value_info(message.get_message())); }},
         Field{bytes(12), [&] { result.outputs.push_back(value_info(message.get_message())); }},
         Field{bytes(13), [&] { result.value_infos.push_back(value_info(message.get_message())); }},
         Field{bytes(15), [&] { result.has_sparse_initializers = true, message.skip(); }});
    return result;
  }

  Node node(pbf_reader message, int depth) {
    count_message();
    if (++nodes_ > max_nodes) {
      throw Error(ErrorCode::limit, "more than " + std::to_string(max_nodes) + " nodes in the model");
    }
    Node result;
    read(message, Field{bytes(1), [&] { result.inputs.push_back(text(message)); }},
         Field{bytes(2), [&] { result.outputs.push_back(text(message)); }},
         Field{bytes(3), [&] { result.name = text(message); }},
         Field{bytes(4), [&] { result.op_type = text(message); }},
         Field{bytes(5), [&] { result.attributes.push_back(attribute(message.get_message(), depth)); }},
         Field{bytes(7), [&] { result.domain = text(message); }},
         Field{bytes(8), [&] { result.overload = text(message); }});
    return result;
  }

  Attribute attribute(pbf_reader message, int depth) {
    count_message();
    Attribute result;
    AttributeType found = AttributeType::undefined;  // for writers that leave `type` out
    read(message, Field{bytes(1), [&] { result.name = text(message); }},
         Field{fixed32(2), [&] { result.float_value = message.get_float(), found = AttributeType::float_; }},
         Field{varint(3), [&] { result.int_value = message.get_int64(), found = AttributeType::int_; }},
         Field{bytes(4), [&] { result.string_value = view(message), found = AttributeType::string; }},
         Field{bytes(5),
               [&] {
                 result.tensor = std::make_shared<Tensor>(tensor(message.get_message()));
                 found = AttributeType::tensor;
               }},
         Field{bytes(6),
               [&] {
                 result.graph = std::make_shared<Graph>(graph(message.get_message(), depth + 1));
                 found = AttributeType::graph;
               }},
         Field{bytes(7), [&] { append(result.floats, message.get_packed_float()), found = AttributeType::floats; }},
         Field{fixed32(7), [&] { result.floats.push_back(message.get_float()), found = AttributeType::floats; }},
         Field{bytes(8), [&] { append(result.ints, message.get_packed_int64()), found = AttributeType::ints; }},
         Field{varint(8), [&] { result.ints.push_back(message.get_int64()), found = AttributeType::ints; }},
         Field{bytes(9), [&] { result.strings.push_back(view(message)), found = AttributeType::strings; }},
         Field{varint(20), [&] { result.type = static_cast<AttributeType>(message.get_int32()); }},
         Field{bytes(21), [&] { result.reference = text(message); }});
    if (result.type == AttributeType::undefined) result.type = found;
    if (result.reference.empty() && ((result.type == AttributeType::tensor && !result.tensor) ||
                                     (result.type == AttributeType::graph && !result.graph))) {
      malformed("attribute `" + std::string(result.name) + "` does not hold what its type says");
    }
    return result;
  }

  Tensor tensor(pbf_reader message) {
    count_message();
    Tensor result;
    read(message, Field{bytes(1), [&] { append(result.dims, message.get_packed_int64()); }},
         Field{varint(1), [&] { result.dims.push_back(message.get_int64()); }},
         Field{varint(2), [&] { result.data_type = message.get_int32(); }},
         Field{bytes(4), [&] { append(result.float_data, message.get_packed_float()); }},
         Field{fixed32(4), [&] { result.float_data.push_back(message.get_float()); }},
         Field{bytes(5), [&] { append(result.int32_data, message.get_packed_int32()); }},
         Field{varint(5), [&] { result.int32_data.push_back(message.get_int32()); }},
         Field{bytes(6), [&] { result.string_data.push_back(view(message)); }},
         Field{bytes(7), [&] { append(result.int64_data, message.get_packed_int64()); }},
         Field{varint(7), [&] { result.int64_data.push_back(message.get_int64()); }},
         Field{bytes(8), [&] { result.name = text(message); }},
         Field{bytes(9), [&] { result.raw_data = view(message); }},
         Field{bytes(10), [&] { append(result.double_data, message.get_packed_double()); }},
         Field{fixed64(10), [&] { result.double_data.push_back(message.get_double()); }},
         Field{bytes(11), [&] { append(result.uint64_data, message.get_packed_uint64()); }},
         Field{varint(11), [&] { result.uint64_data.push_back(message.get_uint64()); }},
         Field{bytes(13), [&] { result.external_data.push_back(string_entry(message.get_message())); }},
         Field{varint(14), [&] { result.is_external = message.get_int32() == 1; }});
    if (result.dims.size() > max_rank) {
      throw Error(ErrorCode::limit, "tensor `" + std::string(result.name) + "` has " +
                                        std::to_string(result.dims.size()) + " dimensions; the limit is " +
                                        std::to_string(max_rank));
    }
    return result;
  }

  ValueInfo value_info(pbf_reader message) {
    count_message();
    ValueInfo result;
    read(message, Field{bytes(1), [&] { result.name = text(message); }},
         Field{bytes(2), [&] { type(message.get_message(), result); }});
    return result;
  }

  void type(pbf_reader message, ValueInfo& into, int depth = 0) {
    const auto is = [&](ValueKind kind) { message.skip(), into.kind = kind; };
    const auto holds = [&](ValueKind kind) {
      into.kind = kind;
      into.element.assign(1, ValueInfo{});
      count_message();
      pbf_reader holder = message.get_message();
      read(holder, Field{bytes(1), [&] { type(holder.get_message(), into.element[0], depth + 1); }});
    };
    constexpr int deepest = 8;
    if (depth > deepest) throw Error(ErrorCode::limit, "types are nested more than 8 deep");
    read(message,
         Field{bytes(1),
               [&] {
                 into.kind = ValueKind::tensor;
                 pbf_reader tensor_type = message.get_message();
                 read(tensor_type, Field{varint(1), [&] { into.element_type = tensor_type.get_int32(); }},
                      Field{bytes(2), [&] { into.shape = shape(tensor_type.get_message()); }});
               }},
         Field{bytes(4), [&] { holds(ValueKind::sequence); }}, Field{bytes(5), [&] { is(ValueKind::other); }},
         Field{bytes(8), [&] { is(ValueKind::other); }}, Field{bytes(9), [&] { holds(ValueKind::optional); }});
  }

  std::vector<Dimension> shape(pbf_reader message) {
    std::vector<Dimension> result;
    read(message, Field{bytes(1), [&] { result.push_back(dimension(message.get_message())); }});
    if (result.size() > max_rank)
      throw Error(ErrorCode::limit, "a value has " + std::to_string(result.size()) + " dimensions");
    return result;
  }

  Dimension dimension(pbf_reader message) {
    count_message();
    Dimension result;
    read(message, Field{varint(1), [&] { result.value = message.get_int64(); }},
         Field{bytes(2), [&] { result.parameter = text(message); }});
    if (result.parameter == "?") result.parameter = {};           // Paddle's way to say nothing
    if (result.value && *result.value < 0) result.value.reset();  // -1 is how some writers say "unknown"
    return result;
  }

  int64_t messages_ = 0, nodes_ = 0;
  bool has_graph_ = false;
};

}  // namespace

struct ElementType {
  const char* name;
  std::optional<DType> dtype;
};

// By the numbers of TensorProto.DataType.
static const ElementType* element_type(int64_t data_type) {
  static const ElementType types[] = {{"undefined", {}},
                                      {"float", f32},
                                      {"uint8", u8},
                                      {"int8", i8},
                                      {"uint16", u16},
                                      {"int16", i16},
                                      {"int32", i32},
                                      {"int64", i64},
                                      {"string", {}},
                                      {"bool", boolean},
                                      {"float16", f16},
                                      {"double", f64},
                                      {"uint32", u32},
                                      {"uint64", u64},
                                      {"complex64", {}},
                                      {"complex128", {}},
                                      {"bfloat16", bf16},
                                      {"float8e4m3fn", f8e4m3fn},
                                      {"float8e4m3fnuz", f8e4m3fnuz},
                                      {"float8e5m2", f8e5m2},
                                      {"float8e5m2fnuz", f8e5m2fnuz},
                                      {"uint4", u4},
                                      {"int4", i4},
                                      {"float4e2m1", f4e2m1},
                                      {"float8e8m0", f8e8m0},
                                      {"uint2", u2},
                                      {"int2", i2}};
  return data_type >= 0 && data_type < static_cast<int64_t>(std::size(types)) ? &types[data_type] : nullptr;
}

std::optional<DType> to_dtype(int64_t data_type) {
  const ElementType* type = element_type(data_type);
  return type ? type->dtype : std::nullopt;
}

std::string data_type_name(int64_t data_type) {
  const ElementType* type = element_type(data_type);
  return type ? type->name : "element type " + std::to_string(data_type);
}

std::optional<DType> dtype_named(std::string_view name) {
  for (int64_t number = 1; const ElementType* type = element_type(number); ++number)
    if (name == type->name) return type->dtype;
  return std::nullopt;
}

const Attribute* Node::find(std::string_view attribute) const {
  for (const Attribute& candidate : attributes) {
    if (candidate.name == attribute) return &candidate;
  }
  return nullptr;
}

Model parse_model(std::span<const std::byte> bytes) {
  if (bytes.size() > max_model_bytes) {
    throw Error(ErrorCode::limit, "the model has " + std::to_string(bytes.size()) +
                                      " bytes; ONNX files end at 2 GiB\n  help: export it with external data");
  }
  if (bytes.empty()) throw Error(ErrorCode::malformed_model, "the file is empty");
  try {
    return Reader().model(pbf_reader(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  } catch (const protozero::exception& error) {
    throw Error(ErrorCode::malformed_model, std::string("not a readable ONNX file (") + error.what() +
                                                "): it is truncated, damaged, or something else");
  } catch (const std::logic_error& error) {
    throw Error(ErrorCode::malformed_model, std::string("not a readable ONNX file (") + error.what() + ")");
  }
}

}  // namespace tw::frontends::onnx
