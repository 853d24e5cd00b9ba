// Two products in a row, with nothing between but moves and a constant for each column, are one with the product of
// their weights, where that multiplies less.
//
//   y = conv(reshape(transpose(matmul(x, a) + b)), w)   ⇒   y = reshape(transpose(matmul(x, a · w))) + b · w
//
// Heads that project maps of several depths to one depth, and then mix them, have such products.
#include <numeric>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

// Rows of an axis of the data by a matrix of weights, which is constant and has the data's type, f32.
struct Product {
  const Node* node = nullptr;
  NDArray weight;
  int axis = 0;                          // of data and result
  int weight_axis = 0, filter_axis = 0;  // of the matrix: what is summed, and the columns

  int64_t sums() const { return weight.shape()[weight_axis]; }
  int64_t columns() const { return weight.shape()[filter_axis]; }
  const float* numbers() const { return static_cast<const float*>(weight.data()); }
  // Elements from one row of the weight, or column, to the next: its other extents are 1.
  int64_t stride(int of_axis) const {
    const Shape& shape = weight.shape();
    return std::accumulate(shape.begin() + of_axis + 1, shape.end(), int64_t{1}, std::multiplies<>());
  }
  int64_t row_stride() const { return stride(weight_axis); }
  int64_t column_stride() const { return stride(filter_axis); }
};

// A row of numbers, one for each row of the matrix, by the matrix.
void multiply_row(const float* row, int64_t step, const Product& by, float* result, int64_t result_step) {
  std::vector<double> sums(static_cast<size_t>(by.columns()));
  for (int64_t k = 0; k < by.sums(); ++k) {
    const double number = row[k * step];
    const float* column = by.numbers() + k * by.row_stride();
    for (double& sum : sums) sum += number * *column, column += by.column_stride();
  }
  for (const double sum : sums) *result = static_cast<float>(sum), result += result_step;
}

class ProductFolder {
 public:
  explicit ProductFolder(const Graph& graph) : graph_(graph), uses_(graph), copy_(graph) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) { return replacement(node); });
  }

 private:
  // What stands between two products, last one first.
  struct Way {
    std::vector<std::pair<const Node*, int>> moves;  // and the axis of the columns behind each
    ValueId bias = no_value;                         // one number a column
  };

  std::optional<Product> product_of_node(const Node& node) const {
    const auto form = linear_of(graph_, node);
    if (!form || form->groups != 1 || form->filter_axis < 0 || !graph_.is_constant(node.inputs[1])) return std::nullopt;
    const TensorType& data = graph_.values[node.inputs[0]].type;
    const NDArray& weight = *graph_.values[node.inputs[1]].constant;
    if (data.dtype != f32 || weight.dtype() != f32 || form->data_axis != form->result_axis) return std::nullopt;
    const TensorType& result = graph_.values[node.outputs[0]].type;
    const auto uses = axes_of(graph_, node)[0];
    if (result.rank() != data.rank() || result.dtype != f32) return std::nullopt;
    for (int d = 0; d < data.rank(); ++d) {
      const bool is_one = is_const_int(data.shape[d], 1) && is_const_int(result.shape[d], 1);
      if (d != form->data_axis && !is_one && !uses[d].is_same(d)) return std::nullopt;
    }
    const Product product{&node, weight, form->data_axis, form->weight_axis, form->filter_axis};
    return product.sums() * product.columns() == weight.size() ? std::optional(product) : std::nullopt;
  }

  ValueId data_of(const Node& node) const {
    return graph_.is_constant(node.inputs[0]) && node.inputs.size() > 1 ? node.inputs[1] : node.inputs[0];
  }

  // ---- from the second product back to the first

  // Of an axis of the node's result, which stays whole, that of its input; a step on the way is noted.
  using Step = std::optional<int> (ProductFolder::*)(const Node& node, int axis, Way& way) const;

  std::optional<int> of_transpose(const Node& node, int axis, Way& way) const {
    way.moves.emplace_back(&node, axis);
    const int64_t from = node.attributes.get_ints("perm")[static_cast<size_t>(axis)];
    return static_cast<int>(from < 0 ? from + graph_.values[node.inputs[0]].type.rank() : from);
  }

  std::optional<int> of_reshape(const Node& node, int axis, Way& way) const {
    const std::vector<Expr>&from = graph_.values[node.inputs[0]].type.shape,
          &to = graph_.values[node.outputs[0]].type.shape;
    const Expr before = product_of({to.begin(), to.begin() + axis});
    for (size_t d = 0; d < from.size(); ++d) {
      if (!is_known_equal(from[d], to[static_cast<size_t>(axis)])) continue;
      if (!is_known_equal(product_of({from.begin(), from.begin() + static_cast<ptrdiff_t>(d)}), before)) continue;
      way.moves.emplace_back(&node, axis);
      return static_cast<int>(d);
    }
    return std::nullopt;
  }

  std::optional<int> of_sum(const Node& node, int axis, Way& way) const {
    const ValueId bias = node.inputs[data_of(node) == node.inputs[0] ? 1 : 0];
    if (way.bias != no_value || !graph_.is_constant(bias) || graph_.values[bias].constant->dtype() != f32)
      return std::nullopt;
    const TensorType& type = graph_.values[node.outputs[0]].type;
    const Shape shape = graph_.values[bias].constant->shape();
    const int missing = type.rank() - static_cast<int>(shape.size());
    for (int d = 0; d < static_cast<int>(shape.size()); ++d)
      if (shape[static_cast<size_t>(d)] != (d + missing == axis ? as_int(type.shape[axis]).value_or(0) : 1))
        return std::nullopt;
    if (axis < missing) return std::nullopt;
    way.bias = bias;
    return axis;
  }

  std::optional<Product> first_of(const Product& second, Way& way) const {
    static const RulesByOp<Step> steps = {{"transpose", &ProductFolder::of_transpose},
                                          {"reshape", &ProductFolder::of_reshape},
                                          {"add", &ProductFolder::of_sum}};
    std::optional<int> axis = second.axis;
    for (const Node* node = made_for_one(graph_, uses_, second.node->inputs[0]); node && axis;
         node = made_for_one(graph_, uses_, data_of(*node))) {
      if (const auto product = product_of_node(*node)) return product->axis == *axis ? product : std::nullopt;
      const Step* step = steps.find(*node);
      if (!step) break;
      axis = (this->**step)(*node, *axis, way);
    }
    return std::nullopt;
  }

  // ---- both as one

  ValueId replacement(const Node& node) {
    const auto second = product_of_node(node);
    Way way;
    const auto first = second ? first_of(*second, way) : std::nullopt;
    if (!first || first->columns() != second->sums()) return no_value;
    // Otherwise two narrow ones are fewer multiplications, or hardly more; or this one takes long to make.
    constexpr double worth = 0.75;
    constexpr int64_t most_multiplications = int64_t{1} << 30;
    const int64_t together = first->sums() * second->columns(),
                  apart = first->columns() * (first->sums() + second->columns());
    if (static_cast<double>(together) > worth * static_cast<double>(apart)) return no_value;
    if (together > most_multiplications / first->columns()) return no_value;

    const bool has_bias = way.bias != no_value;
    const auto made = [&](bool is_last, const Node& like, std::vector<ValueId> inputs, NodeAttributes attributes) {
      return copy_.add(is_last && !has_bias ? node : like, *like.op, std::move(inputs), std::move(attributes))[0];
    };
    const ValueId weight = copy_.to().add_constant(node.name + ".weight", weights_of(*first, *second));
    ValueId result =
        made(way.moves.empty(), *first->node, {copy_[first->node->inputs[0]], weight}, first->node->attributes);
    for (size_t i = way.moves.size(); i-- > 0;) {
      const auto& [move, axis] = way.moves[i];
      result = made(i == 0, *move, {result}, attributes_for(graph_, *move, axis, Expr(second->columns())));
    }
    if (!has_bias) return result;
    const ValueId bias = copy_.to().add_constant(node.name + ".bias", bias_of(way.bias, *second));
    return copy_.add(node, "add", {result, bias})[0];
  }

  // As the first one's lie.
  static NDArray weights_of(const Product& first, const Product& second) {
    Shape shape = first.weight.shape();
    shape[static_cast<size_t>(first.filter_axis)] = second.columns();
    Product both = first;
    both.weight = NDArray(f32, shape);
    auto* result = static_cast<float*>(both.weight.data());
    for (int64_t i = 0; i < first.sums(); ++i)
      multiply_row(first.numbers() + i * first.row_stride(), first.column_stride(), second,
                   result + i * both.row_stride(), both.column_stride());
    return both.weight;
  }

  NDArray bias_of(ValueId bias, const Product& second) const {
    Shape shape(static_cast<size_t>(graph_.values[second.node->outputs[0]].type.rank()), 1);
    shape[static_cast<size_t>(second.axis)] = second.columns();
    NDArray result(f32, shape);
    multiply_row(static_cast<const float*>(graph_.values[bias].constant->data()), 1, second,
                 static_cast<float*>(result.data()), 1);
    return result;
  }

  const Graph& graph_;
  const Uses uses_;
  GraphCopy copy_;
};

}  // namespace

Graph fold_products(const Graph& graph) {
  return ProductFolder(graph).run();
}

}  // namespace tw::relay
