// ONNX models for tests, written field by field (numbers as in onnx.proto), well-formed or not.
#pragma once

#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <vector>

#include "frontends/onnx/proto.h"

namespace tw::test {

using Message = std::string;

inline Message message(const std::function<void(protozero::pbf_writer&)>& fill) {
  std::string data;
  protozero::pbf_writer writer(data);
  fill(writer);
  return data;
}

inline Message attribute_int(const std::string& name, int64_t value) {
  return message([&](auto& w) { w.add_string(1, name), w.add_int64(3, value), w.add_int32(20, 2); });
}
inline Message attribute_ints(const std::string& name, const std::vector<int64_t>& values) {
  return message([&](auto& w) {
    w.add_string(1, name);
    for (const int64_t v : values) w.add_int64(8, v);
    w.add_int32(20, 7);
  });
}
inline Message attribute_float(const std::string& name, float value) {
  return message([&](auto& w) { w.add_string(1, name), w.add_float(2, value), w.add_int32(20, 1); });
}
inline Message attribute_graph(const std::string& name, const Message& graph) {
  return message([&](auto& w) { w.add_string(1, name), w.add_message(6, graph), w.add_int32(20, 5); });
}
inline Message attribute_reference(const std::string& name, const std::string& of, int type) {
  return message([&](auto& w) { w.add_string(1, name), w.add_int32(20, type), w.add_string(21, of); });
}

inline Message node(const std::string& op, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs, const std::vector<Message>& attributes = {},
                    const std::string& name = {}, const std::string& domain = {}) {
  return message([&](auto& w) {
    for (const auto& input : inputs) w.add_string(1, input);
    for (const auto& output : outputs) w.add_string(2, output);
    if (!name.empty()) w.add_string(3, name);
    w.add_string(4, op);
    for (const auto& attribute : attributes) w.add_message(5, attribute);
    if (!domain.empty()) w.add_string(7, domain);
  });
}

// A dimension is a number, or a name.
struct Dim {
  int64_t value = 0;
  std::string name;
  Dim(int value) : value(value) {}       // NOLINT
  Dim(const char* name) : name(name) {}  // NOLINT
};

inline Message value_info(const std::string& name, int type, const std::vector<Dim>& dims) {
  const Message shape = message([&](auto& w) {
    for (const Dim& dim : dims) {
      w.add_message(
          1, message([&](auto& d) { dim.name.empty() ? d.add_int64(1, dim.value) : d.add_string(2, dim.name); }));
    }
  });
  const Message tensor = message([&](auto& w) { w.add_int32(1, type), w.add_message(2, shape); });
  return message(
      [&](auto& w) { w.add_string(1, name), w.add_message(2, message([&](auto& t) { t.add_message(1, tensor); })); });
}

// Of a sequence (4) or an optional value (9), by the field of TypeProto that says so.
inline Message list_info(const std::string& name, int field) {
  return message([&](auto& w) {
    w.add_string(1, name), w.add_message(2, message([&](auto& t) { t.add_message(field, Message()); }));
  });
}

inline Message tensor_head(const std::string& name, int type, const std::vector<int64_t>& dims) {
  return message([&](auto& w) {
    for (const int64_t dim : dims) w.add_int64(1, dim);
    w.add_int32(2, type);
    if (!name.empty()) w.add_string(8, name);
  });
}
template <class T>
Message raw_tensor(const std::string& name, int type, const std::vector<int64_t>& dims, const std::vector<T>& values) {
  Message data = tensor_head(name, type, dims);
  protozero::pbf_writer(data).add_bytes(9, reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return data;
}
inline Message external_tensor(const std::string& name, const std::vector<int64_t>& dims,
                               const std::vector<std::pair<std::string, std::string>>& entries) {
  Message data = tensor_head(name, 1, dims);
  protozero::pbf_writer w(data);
  for (const auto& [key, value] : entries) {
    w.add_message(13, message([&key = key, &value = value](auto& e) { e.add_string(1, key), e.add_string(2, value); }));
  }
  w.add_int32(14, 1);
  return data;
}
inline Message attribute_tensor(const std::string& name, const Message& tensor) {
  return message([&](auto& w) { w.add_string(1, name), w.add_message(5, tensor), w.add_int32(20, 4); });
}

struct GraphParts {
  std::vector<Message> nodes, initializers, inputs, outputs;
};

inline Message graph(const GraphParts& parts) {
  return message([&](auto& w) {
    for (const auto& node : parts.nodes) w.add_message(1, node);
    w.add_string(2, "test");
    for (const auto& tensor : parts.initializers) w.add_message(5, tensor);
    for (const auto& input : parts.inputs) w.add_message(11, input);
    for (const auto& output : parts.outputs) w.add_message(12, output);
  });
}

inline Message model(const GraphParts& parts, int64_t opset = 17, const std::vector<Message>& functions = {},
                     const std::vector<std::string>& domains = {}) {
  return message([&](auto& w) {
    w.add_int64(1, 8);
    w.add_message(7, graph(parts));
    w.add_message(8, message([&](auto& o) { o.add_string(1, ""), o.add_int64(2, opset); }));
    for (const auto& domain : domains) {
      w.add_message(8, message([&](auto& o) { o.add_string(1, domain), o.add_int64(2, 1); }));
    }
    for (const auto& function : functions) w.add_message(25, function);
  });
}

inline Message function(const std::string& domain, const std::string& name, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::vector<std::string>& attributes,
                        const std::vector<Message>& nodes) {
  return message([&](auto& w) {
    w.add_string(1, name);
    for (const auto& input : inputs) w.add_string(4, input);
    for (const auto& output : outputs) w.add_string(5, output);
    for (const auto& attribute : attributes) w.add_string(6, attribute);
    for (const auto& node : nodes) w.add_message(7, node);
    w.add_message(9, message([&](auto& o) { o.add_string(1, ""), o.add_int64(2, 17); }));
    w.add_string(10, domain);
  });
}

inline std::span<const std::byte> bytes_of(const Message& data) {
  return std::as_bytes(std::span(data.data(), data.size()));
}

}  // namespace tw::test
