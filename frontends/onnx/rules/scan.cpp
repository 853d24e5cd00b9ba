// Running sums, selection of the largest, scatters.
#include <algorithm>

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

// The axis may be computed by the model: then every axis is run along, and the right result chosen.
Rule cumulate_rule(const std::string& op_type, bool product, int since) {
  return rule(op_type, since, [=](Context& c) {
    const ValueId x = c.input(0);
    const int rank = rank_of(c, x);
    auto along = [&](int axis) {
      return c.emit("cumulate", {x},
                    attributes_of({{"axis", int64_t{axis}},
                                   {"product", int64_t{product}},
                                   {"exclusive", c.attribute_int("exclusive", 0)},
                                   {"reverse", c.attribute_int("reverse", 0)}}));
    };
    if (rank == 0) c.refuse("a scalar");
    if (!is_const_int(product_of(c.type(c.input(1)).shape), 1)) c.refuse("an axis that is no single number");
    if (c.constant(c.input(1))) {
      return along(rule_axis(c, c.constant(c.input(1))->get_int(0), rank));
    }
    if (rank > 4) c.refuse("an axis that the model computes, for data of rank " + std::to_string(rank));
    ValueId axis = emit_reshape(c, emit_cast(c, c.input(1), i64), {});
    ValueId result = along(0);
    for (int k = 1; k < rank; ++k) {
      const ValueId front = c.emit("equal", {axis, emit_ints(c, {k}, {}, i64)});
      const ValueId back = c.emit("equal", {axis, emit_ints(c, {k - rank}, {}, i64)});
      result = c.emit("where", {c.emit("logical_or", {front, back}), along(k), result});
    }
    return result;
  });
}

std::vector<ValueId> import_top_k(Context& c) {
  const std::vector<Expr> k = c.opset() >= 10 ? c.read_dims(1) : std::vector<Expr>{c.attribute_int("k", 0)};
  if (k.size() != 1) c.refuse("k is no single number");
  return c.emit_all("top_k", {c.input(0)},
                    attributes_of({{"k", k},
                                   {"axis", int64_t{rule_axis(c, c.attribute_int("axis", -1), rank_of(c, c.input(0)))}},
                                   {"largest", c.attribute_int("largest", 1)}}));
}

std::string reduction_of(Context& c) {
  const std::string reduction = c.attribute_string("reduction", "none");
  if (reduction != "none" && reduction != "add" && reduction != "mul" && reduction != "max" && reduction != "min") {
    c.refuse("reduction=\"" + reduction + "\"");
  }
  return reduction;
}

ValueId import_scatter_elements(Context& c) {
  const int axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, c.input(0)));
  emit_index_check(c, c.input(1), {c.type(c.input(0)).shape[static_cast<size_t>(axis)]});
  return c.emit("scatter_elements", {c.input(0), c.input(1), c.input(2)},
                attributes_of({{"axis", c.attribute_int("axis", 0)}, {"reduction", reduction_of(c)}}));
}

}  // namespace

std::vector<Rule> scan_rules() {
  return {
      rule("ScatterElements", 11, import_scatter_elements),
      rule("Scatter", 9, import_scatter_elements),
      rule("ScatterND", 11,
           [](Context& c) {
             emit_index_check(c, c.input(1), indexed_extents(c, c.input(0), c.input(1)));
             return c.emit("scatter_nd", {c.input(0), c.input(1), c.input(2)},
                           attributes_of({{"reduction", reduction_of(c)}}));
           }),
      cumulate_rule("CumSum", false, 11),
      cumulate_rule("CumProd", true, 26),
      {"TopK", "", 1, import_top_k},
  };
}

}  // namespace tw::frontends::onnx
