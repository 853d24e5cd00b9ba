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

// Reads messages; one method a message of onnx.proto, its cases in the order of the field numbers there.
class Reader {
 public:
  Model model(pbf_reader message) {
    Model result;
    while (message.next()) {
      switch (message.tag_and_type()) {
        case varint(1):
          result.ir_version = message.get_int64();
          break;
        case bytes(2):
          result.producer_name = text(message);
          break;
        case bytes(3):
          result.producer_version = text(message);
          break;
        case bytes(7):
          result.graph = graph(message.get_message(), 1), has_graph_ = true;
          break;
        case bytes(8):
          result.opsets.push_back(opset(message.get_message()));
          break;
        case bytes(14):
          result.metadata.push_back(string_entry(message.get_message()));
          break;
        case bytes(25):
          result.functions.push_back(function(message.get_message()));
          break;
        default:
          message.skip();
      }
    }
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
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          result.domain = text(message);
          break;
        case varint(2):
          result.version = message.get_int64();
          break;
        default:
          message.skip();
      }
    }
    return result;
  }

  StringEntry string_entry(pbf_reader message) {
    count_message();
    StringEntry result;
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          result.key = view(message);
          break;
        case bytes(2):
          result.value = view(message);
          break;
        default:
          message.skip();
      }
    }
    return result;
  }

  Function function(pbf_reader message) {
    count_message();
    Function result;
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          result.name = text(message);
          break;
        case bytes(4):
          result.inputs.push_back(text(message));
          break;
        case bytes(5):
          result.outputs.push_back(text(message));
          break;
        case bytes(6):
          result.attributes.push_back(text(message));
          break;
        case bytes(7):
          result.nodes.push_back(node(message.get_message(), 1));
          break;
        case bytes(9):
          result.opsets.push_back(opset(message.get_message()));
          break;
        case bytes(10):
          result.domain = text(message);
          break;
        case bytes(11):
          result.attribute_defaults.push_back(attribute(message.get_message(), 1));
          break;
        case bytes(13):
          result.overload = text(message);
          break;
        default:
          message.skip();
      }
    }
    return result;
  }

  Graph graph(pbf_reader message, int depth) {
    count_message();
    if (depth > max_graph_depth) {
      throw Error(ErrorCode::limit, "graphs are nested more than " + std::to_string(max_graph_depth) + " deep");
    }
    Graph result;
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          result.nodes.push_back(node(message.get_message(), depth));
          break;
        case bytes(2):
          result.name = text(message);
          break;
        case bytes(5):
          result.initializers.push_back(tensor(message.get_message()));
          break;
        case bytes(11):
          result.inputs.push_back(value_info(message.get_message()));
          break;
        case bytes(12):
          result.outputs.push_back(value_info(message.get_message()));
          break;
        case bytes(13):
          result.value_infos.push_back(value_info(message.get_message()));
          break;
        case bytes(15):
          result.has_sparse_initializers = true, message.skip();
          break;
        default:
          message.skip();
      }
    }
    return result;
  }

  Node node(pbf_reader message, int depth) {
    count_message();
    if (++nodes_ > max_nodes) {
      throw Error(ErrorCode::limit, "more than " + std::to_string(max_nodes) + " nodes in the model");
    }
    Node result;
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          result.inputs.push_back(text(message));
          break;
        case bytes(2):
          result.outputs.push_back(text(message));
          break;
        case bytes(3):
          result.name = text(message);
          break;
        case bytes(4):
          result.op_type = text(message);
          break;
        case bytes(5):
          result.attributes.push_back(attribute(message.get_message(), depth));
          break;
        case bytes(7):
          result.domain = text(message);
          break;
        case bytes(8):
          result.overload = text(message);
          break;
        default:
          message.skip();
      }
    }
    return result;
  }

  Attribute attribute(pbf_reader message, int depth) {
    count_message();
    Attribute result;
    AttributeType found = AttributeType::undefined;  // for writers that leave `type` out
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          result.name = text(message);
          break;
        case fixed32(2):
          result.float_value = message.get_float(), found = AttributeType::float_;
          break;
        case varint(3):
          result.int_value = message.get_int64(), found = AttributeType::int_;
          break;
        case bytes(4):
          result.string_value = view(message), found = AttributeType::string;
          break;
        case bytes(5):
          result.tensor = std::make_shared<Tensor>(tensor(message.get_message()));
          found = AttributeType::tensor;
          break;
        case bytes(6):
          result.graph = std::make_shared<Graph>(graph(message.get_message(), depth + 1));
          found = AttributeType::graph;
          break;
        case bytes(7):
          append(result.floats, message.get_packed_float()), found = AttributeType::floats;
          break;
        case fixed32(7):
          result.floats.push_back(message.get_float()), found = AttributeType::floats;
          break;
        case bytes(8):
          append(result.ints, message.get_packed_int64()), found = AttributeType::ints;
          break;
        case varint(8):
          result.ints.push_back(message.get_int64()), found = AttributeType::ints;
          break;
        case bytes(9):
          result.strings.push_back(view(message)), found = AttributeType::strings;
          break;
        case varint(20):
          result.type = static_cast<AttributeType>(message.get_int32());
          break;
        case bytes(21):
          result.reference = text(message);
          break;
        default:
          message.skip();
      }
    }
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
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          append(result.dims, message.get_packed_int64());
          break;
        case varint(1):
          result.dims.push_back(message.get_int64());
          break;
        case varint(2):
          result.data_type = message.get_int32();
          break;
        case bytes(4):
          append(result.float_data, message.get_packed_float());
          break;
        case fixed32(4):
          result.float_data.push_back(message.get_float());
          break;
        case bytes(5):
          append(result.int32_data, message.get_packed_int32());
          break;
        case varint(5):
          result.int32_data.push_back(message.get_int32());
          break;
        case bytes(6):
          result.string_data.push_back(view(message));
          break;
        case bytes(7):
          append(result.int64_data, message.get_packed_int64());
          break;
        case varint(7):
          result.int64_data.push_back(message.get_int64());
          break;
        case bytes(8):
          result.name = text(message);
          break;
        case bytes(9):
          result.raw_data = view(message);
          break;
        case bytes(10):
          append(result.double_data, message.get_packed_double());
          break;
        case fixed64(10):
          result.double_data.push_back(message.get_double());
          break;
        case bytes(11):
          append(result.uint64_data, message.get_packed_uint64());
          break;
        case varint(11):
          result.uint64_data.push_back(message.get_uint64());
          break;
        case bytes(13):
          result.external_data.push_back(string_entry(message.get_message()));
          break;
        case varint(14):
          result.is_external = message.get_int32() == 1;
          break;
        default:
          message.skip();
      }
    }
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
    while (message.next()) {
      switch (message.tag_and_type()) {
        case bytes(1):
          result.name = text(message);
          break;
        case bytes(2):
          type(message.get_message(), result);
          break;
        default:
          message.skip();
      }
    }
    return result;
  }

  void type(pbf_reader message, ValueInfo& into) {
    while (message.next()) {
      if (message.tag_and_type() != bytes(1)) {  // tensor_type; the other kinds of value are no tensors
        message.skip();
        continue;
      }
      into.is_tensor = true;
      pbf_reader tensor_type = message.get_message();
      while (tensor_type.next()) {
        switch (tensor_type.tag_and_type()) {
          case varint(1):
            into.element_type = tensor_type.get_int32();
            break;
          case bytes(2):
            into.shape = shape(tensor_type.get_message());
            break;
          default:
            tensor_type.skip();
        }
      }
    }
  }

  std::vector<Dimension> shape(pbf_reader message) {
    std::vector<Dimension> result;
    while (message.next()) {
      if (message.tag_and_type() != bytes(1)) {
        message.skip();
        continue;
      }
      count_message();
      pbf_reader dim = message.get_message();
      Dimension& dimension = result.emplace_back();
      while (dim.next()) {
        switch (dim.tag_and_type()) {
          case varint(1):
            dimension.value = dim.get_int64();
            break;
          case bytes(2):
            dimension.parameter = text(dim);
            if (dimension.parameter == "?") dimension.parameter = {};  // Paddle's way to say nothing
            break;
          default:
            dim.skip();
        }
      }
      if (dimension.value && *dimension.value < 0) dimension.value.reset();  // -1 is how some writers say "unknown"
    }
    if (result.size() > max_rank)
      throw Error(ErrorCode::limit, "a value has " + std::to_string(result.size()) + " dimensions");
    return result;
  }

  int64_t messages_ = 0, nodes_ = 0;
  bool has_graph_ = false;
};

}  // namespace

std::optional<DType> to_dtype(int64_t data_type) {
  switch (static_cast<DataType>(data_type)) {
    case DataType::float32:
      return f32;
    case DataType::uint8:
      return u8;
    case DataType::int8:
      return i8;
    case DataType::uint16:
      return u16;
    case DataType::int16:
      return i16;
    case DataType::int32:
      return i32;
    case DataType::int64:
      return i64;
    case DataType::boolean:
      return tw::boolean;
    case DataType::float16:
      return f16;
    case DataType::float64:
      return f64;
    case DataType::uint32:
      return u32;
    case DataType::uint64:
      return u64;
    case DataType::bfloat16:
      return bf16;
    default:
      return std::nullopt;
  }
}

std::string data_type_name(int32_t data_type) {
  static const char* const names[] = {
      "undefined", "float",      "uint8",      "int8",         "uint16",         "int16",      "int32",
      "int64",     "string",     "bool",       "float16",      "double",         "uint32",     "uint64",
      "complex64", "complex128", "bfloat16",   "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
      "uint4",     "int4",       "float4e2m1", "float8e8m0",   "uint2",          "int2"};
  if (data_type >= 0 && data_type < static_cast<int32_t>(std::size(names))) return names[data_type];
  return "element type " + std::to_string(data_type);
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
