#include "relay_ir/passes/quantised.h"

#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {

std::optional<Quantised> find_quantised(GraphCopy& copy, ValueId now) {
  const Graph& graph = copy.to();
  const Node* scaled = copy.made_by(now, "multiply");
  const Node* wide = copy.made_by(scaled ? scaled->inputs[0] : now, "cast");
  if (!wide || graph.values[now].type.dtype != f32) return std::nullopt;
  Quantised result{.scale = scaled ? scaled->inputs[1] : no_value};
  ValueId whole = wide->inputs[0];
  const auto has_its_shape = [&](ValueId id) {
    return is_same_shape(graph.values[id].type.shape, graph.values[now].type.shape);
  };
  if (is_float8(graph.values[whole].type.dtype)) {
    result.codes = whole;
    return has_its_shape(whole) ? std::optional(result) : std::nullopt;
  }
  if (const Node* centred = copy.made_by(whole, "subtract"))
    whole = centred->inputs[0], result.zero_point = centred->inputs[1];
  const Node* first = graph.values[whole].type.dtype == i32 ? copy.made_by(whole, "cast") : nullptr;
  if (!first) return std::nullopt;
  result.codes = first->inputs[0];
  const TensorType& codes = graph.values[result.codes].type;
  const bool is_code = codes.dtype.is_integer() && codes.dtype.bits <= 8;
  return is_code && has_its_shape(result.codes) ? std::optional(result) : std::nullopt;
}

bool has_one_scale(const Graph& graph, const Quantised& x) {
  const auto is_one = [&](ValueId id) { return is_const_int(simplify(product_of(graph.values[id].type.shape)), 1); };
  return (x.scale == no_value || is_one(x.scale)) && (x.zero_point == no_value || is_one(x.zero_point));
}

std::pair<int64_t, int64_t> limits_of_codes(DType codes) {
  if (codes.is_minifloat()) {
    const auto largest = static_cast<int64_t>(minifloat_to_float(codes, minifloat_format(codes).largest));
    return {-largest, largest};
  }
  const int64_t width = int64_t{1} << codes.bits;
  return codes.is_signed_integer() ? std::pair(-width / 2, width / 2 - 1) : std::pair(int64_t{0}, width - 1);
}

ValueId add_number(Graph& graph, std::string name, int64_t number, DType dtype) {
  return graph.add_constant(std::move(name), int_array({number}, dtype).reshape({}));
}

std::pair<DType, DType> factors_for(DType data, DType weights, const Target& target) {
  const bool has_u8s8 = target.find_instruction(Intrinsic::dot_u8s8),
             has_s8s8 = target.find_instruction(Intrinsic::dot_s8s8);
  if (!has_u8s8 && !has_s8s8) return {data, weights};
  return {has_u8s8 && has_s8s8 ? data : has_u8s8 ? u8 : i8, i8};
}

int64_t sign_shift(DType to_type) {
  return limits_of_codes(to_type).first - limits_of_codes(to_type == i8 ? u8 : i8).first;
}

ValueId with_other_sign(GraphCopy& copy, const Node& node, ValueId codes) {
  Graph& graph = copy.to();
  const DType other = graph.values[codes].type.dtype == u8 ? i8 : u8;
  const auto cast = [&](ValueId x, DType dtype) {
    return graph.add_node("cast", {x}, attributes_of({{"to", to_string(dtype)}}), node.name + ".cast")[0];
  };
  const ValueId shift = add_number(graph, node.name + ".shift", sign_shift(other));
  return cast(graph.add_node("add", {cast(codes, i32), shift}, {}, node.name + ".add")[0], other);
}

}  // namespace tw::relay
