#include "relay_ir/passes/code_sums.h"

#include <utility>

#include "relay_ir/ops/common.h"
#include "relay_ir/passes/padding.h"
#include "relay_ir/passes/quantised.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {

ValueId CodeSums::of_filters(ValueId weights, ValueId factor) {
  std::vector<Expr> shape = type(weights).shape;
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    if (form_.has_window ? d != form_.filter_axis : d == form_.weight_axis) axes.push_back(d);
  const ValueId all = add("multiply", {factor, reduced(weights, std::move(axes))});
  if (form_.has_window) return filters_beside(all);
  shape.erase(shape.begin() + form_.weight_axis);
  shape.insert(shape.end() - 1, Expr(1));
  return reshape(all, shape);
}

ValueId CodeSums::of_rows(ValueId data, ValueId weights, ValueId pad) {
  return form_.has_window ? of_windows(data, weights, pad) : reduced(data, {form_.data_axis});
}

ValueId CodeSums::beside(ValueId rows, ValueId factor) {
  if (form_.has_window) return add("multiply", {rows, factor});
  std::vector<Expr> shape = type(rows).shape;
  shape.emplace_back(1);
  if (type(factor).rank() == 0) return reshape(add("multiply", {rows, factor}), shape);
  return add("multiply", {reshape(rows, shape), factor});
}

ValueId CodeSums::filters_beside(ValueId parameter) {
  const Expr count = simplify(product_of(type(parameter).shape));
  if (is_const_int(count, 1)) return reshape(parameter, {});
  const int rank = copy_.from().values[node_.outputs[0]].type.rank() - form_.result_axis;
  std::vector<Expr> shape(static_cast<size_t>(rank), Expr(1));
  shape[0] = count;
  return reshape(parameter, shape);
}

// Of the channels' sums.
ValueId CodeSums::of_windows(ValueId data, ValueId weights, ValueId pad) {
  ValueId x = add("reduce_sum", {add("cast", {data}, attributes_of({{"to", "i32"}}))},
                  attributes_of({{"axes", std::vector<int64_t>{1}}}));
  Shape window = *static_shape(type(weights));
  NodeAttributes attributes = node_.attributes;
  attributes.set("result", std::string());
  if (pad != no_value) {
    const ValueId channels = add_number(copy_.to(), node_.name + ".channels", window[1]);
    x = padded(copy_.to(), x, attributes, add("multiply", {pad, channels}));
  }
  window[0] = window[1] = 1;
  const std::vector<int64_t> ones(static_cast<size_t>(element_count(window)), 1);
  const ValueId all = copy_.to().add_constant(node_.name + ".window", int_array(ones, i32).reshape(window));
  return copy_.to().add_node(*node_.op, {x, all}, attributes, node_.name + ".sums")[0];
}

ValueId CodeSums::add(const char* op, std::vector<ValueId> inputs, NodeAttributes attributes) {
  return copy_.to().add_node(op, std::move(inputs), std::move(attributes), node_.name + "." + op)[0];
}

ValueId CodeSums::reshape(ValueId x, const std::vector<Expr>& shape) {
  return is_same_shape(type(x).shape, shape) ? x : add("reshape", {x}, attributes_of({{"shape", shape}}));
}

ValueId CodeSums::reduced(ValueId codes, std::vector<int64_t> axes) {
  const ValueId wide = type(codes).dtype == i32 ? codes : add("cast", {codes}, attributes_of({{"to", "i32"}}));
  return add("reduce_sum", {wide}, attributes_of({{"axes", std::move(axes)}, {"keepdims", int64_t{0}}}));
}

}  // namespace tw::relay
