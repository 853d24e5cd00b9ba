// Operators that are loops rather than tensor expressions: scatters, running sums, selection of the largest.
#include <algorithm>
#include <limits>

#include "relay_ir/in_place.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"
#include "relay_ir/ops/sorting.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

Expr combine(const OpCall& c, const Expr& old, const Expr& update) {
  const std::string& reduction = c.attributes.get_string("reduction");
  if (reduction == "add") return update.dtype().is_bool() ? old || update : old + update;
  if (reduction == "mul") return update.dtype().is_bool() ? old && update : old * update;
  if (reduction == "max") return update.dtype().is_bool() ? old || update : maximum_of(old, update);
  if (reduction == "min") return update.dtype().is_bool() ? old && update : minimum_of(old, update);
  return update;
}

void require_reduction(const OpCall& c) {
  const std::string& reduction = c.attributes.get_string("reduction");
  c.require(reduction == "none" || reduction == "add" || reduction == "mul" || reduction == "max" || reduction == "min",
            "no such reduction: " + reduction);
}

AttributeDef reduction_attribute() {
  return {"reduction", "none", false, "how an update meets what is there: none (replaces), add, mul, max, min"};
}

Stmt update_elements(const OpCall& c, const std::vector<te::Tensor>& in, const Buffer& result) {
  const int axis = normal_axis(c, c.attributes.get_int("axis"), result.rank());
  return loops_over(in[1].shape(), [&](const te::Indices& i) {
    te::Indices to = i;
    to[axis] = data_index(in[1](i), result->shape[axis]);
    return store(result, to, combine(c, load(result, to), in[2](i)));
  });
}

Stmt update_slices(const OpCall& c, const std::vector<te::Tensor>& in, const Buffer& result) {
  const int64_t depth = *as_int(in[1].shape().back());
  const auto shape = in[2].shape();
  const auto lead = shape.begin() + in[1].rank() - 1;
  return loops_over({shape.begin(), lead}, [&](const te::Indices& row) {
    // Where the slice goes is found once.
    std::vector<Var> places;
    for (int64_t k = 0; k < depth; ++k) places.emplace_back("place" + std::to_string(k));
    Stmt put = rows_in_vectors({lead, shape.end()}, [&](const te::Indices& within) {
      te::Indices from = row, to(places.begin(), places.end());
      from.insert(from.end(), within.begin(), within.end());
      to.insert(to.end(), within.begin(), within.end());
      return store(result, to, combine(c, load(result, to), in[2](from)));
    });
    for (int64_t k = depth; k-- > 0;) {
      te::Indices at = row;
      at.emplace_back(k);
      put = make_stmt<LetStmt>(places[static_cast<size_t>(k)], data_index(in[1](at), result->shape[k]), put);
    }
    return put;
  });
}

OpDef scatter_elements_op() {
  OpDef op;
  op.name = "scatter_elements";
  op.kind = OpKind::opaque;
  op.doc = "x with updates[i, j …] put to [indices[i, j …], j …], the index replacing that of the axis, in order.";
  op.input_names = {"x", "indices", "updates"};
  op.attributes = {{"axis", 0, false, "the axis that indices select"}, reduction_attribute()};
  op.decisions = {in_place_decision()};
  op.facts = updated_facts(update_elements, 3);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &indices = c.inputs[1], &updates = c.inputs[2];
    c.require(indices.dtype == i32 || indices.dtype == i64, "indices are i32 or i64");
    c.require(x.dtype == updates.dtype, "x and updates have one type");
    c.require(x.rank() == indices.rank() && x.rank() == updates.rank(), "all have one rank");
    require_reduction(c);
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    for (int d = 0; d < x.rank(); ++d) {
      c.require_equal(indices.shape[d], updates.shape[d], "indices and updates have one shape");
      if (d != axis) c.require_at_most(indices.shape[d], x.shape[d], "indices reach outside x");
    }
    return {x};
  };
  op.compute = copied_and_updated("scatter_elements", update_elements);
  op.examples = {{{tensor_type(f32, {3, 3}), tensor_type(i64, {2, 3}), tensor_type(f32, {2, 3})},
                  attributes_of({{"reduction", "add"}}),
                  {NDArray(), int_array({0, -1, 1, 0, 2, 1}).reshape({2, 3})}}};
  return op;
}

OpDef scatter_nd_op() {
  OpDef op;
  op.name = "scatter_nd";
  op.kind = OpKind::opaque;
  op.doc = "x with slices of updates put to the coordinates that the last dimension of indices holds, in order.";
  op.input_names = {"x", "indices", "updates"};
  op.attributes = {reduction_attribute()};
  op.decisions = {in_place_decision()};
  op.facts = updated_facts(update_slices, 3);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &indices = c.inputs[1], &updates = c.inputs[2];
    c.require(indices.dtype == i32 || indices.dtype == i64, "indices are i32 or i64");
    c.require(x.dtype == updates.dtype, "x and updates have one type");
    c.require(indices.rank() >= 1 && as_int(indices.shape.back()).value_or(x.rank() + 1) <= x.rank(),
              "coordinates are at most as long as x has dimensions");
    require_reduction(c);
    std::vector<Expr> wanted(indices.shape.begin(), indices.shape.end() - 1);
    wanted.insert(wanted.end(), x.shape.begin() + *as_int(indices.shape.back()), x.shape.end());
    c.require(updates.shape.size() == wanted.size(), "updates have the shape of the selected slices");
    for (size_t d = 0; d < wanted.size(); ++d) {
      c.require_equal(wanted[d], updates.shape[d], "updates have the shape of the selected slices");
    }
    return {x};
  };
  op.compute = copied_and_updated("scatter_nd", update_slices);
  op.examples = {{{tensor_type(f32, {4, 3}), tensor_type(i64, {2, 1}), tensor_type(f32, {2, 3})},
                  attributes_of({{"reduction", "max"}}),
                  {NDArray(), int_array({3, 0}).reshape({2, 1})}}};
  return op;
}

OpDef scan_op() {
  OpDef op;
  op.name = "cumulate";
  op.kind = OpKind::opaque;
  op.doc = "Running sum or product along an axis.";
  op.input_names = {"x"};
  op.attributes = {{"axis", 0, true, "the axis along which it runs"},
                   {"product", 0, false, "1: products instead of sums"},
                   {"exclusive", 0, false, "1: an element is not part of its own result"},
                   {"reverse", 0, false, "1: from the end"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(!c.inputs[0].dtype.is_bool(), "takes numbers");
    normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank());
    return {c.inputs[0]};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const bool product = c.attributes.get_int("product") != 0, exclusive = c.attributes.get_int("exclusive") != 0,
               reverse = c.attributes.get_int("reverse") != 0;
    const DType wide = accumulator_of(x.dtype());
    if (x.rank() == 0) {  // one that is first and last
      const Expr own = cast(wide, x(te::Indices{}));
      return {te::compute("cumulate", {}, in, [&](const te::Indices&) {
        return cast(x.dtype(), exclusive ? const_of(wide, product ? 1 : 0) : own);
      })};
    }
    // A row along the axis has a total, or rows that are neighbours have, side by side.
    constexpr int64_t lanes = 64;
    const int last = x.rank() - 1;
    const bool is_single = axis == last;
    const Expr count = x.shape()[axis], width = is_single ? Expr(1) : x.shape()[last];
    std::vector<Expr> rows = x.shape();
    rows[axis] = 1;
    rows[last] = is_single ? Expr(1) : simplify(floor_div(width + (lanes - 1), lanes));
    auto body = [&](const Buffer& result) {
      return rows_in_parallel(rows, simplify(count * min(width, Expr(lanes))), [&](const te::Indices& row) {
        const Buffer totals = scratch("totals", wide, {Expr(is_single ? 1 : lanes)});
        const Expr first = row[last] * lanes, neutral = const_of(wide, product ? 1 : 0);
        const auto element = [&](const Expr& step, const Expr& lane) {
          te::Indices at = row;
          if (!is_single) at[last] = first + lane;
          at[axis] = reverse ? count - 1 - step : step;
          const Expr before = load(totals, {lane}), own = cast(wide, x(at));
          const Stmt add = store(totals, {lane}, product ? before * own : before + own);
          const Stmt give = store(result, at, before);
          return exclusive ? seq({give, add}) : seq({add, give});
        };
        const Stmt begin = loops_over(totals->shape, [&](const te::Indices& i) { return store(totals, i, neutral); });
        const Stmt one_by_one = loops_over({count, is_single ? Expr(1) : min(width - first, Expr(lanes))},
                                           [&](const te::Indices& i) { return element(i[0], i[1]); });
        const Stmt together = loops_over({count}, [&](const te::Indices& i) {
          const Var lane("lane");
          return make_stmt<For>(lane, Expr(lanes), LoopKind::vectorized, element(i[0], lane));
        });
        const Stmt run = is_single ? one_by_one : make_stmt<If>(first + lanes <= width, together, one_by_one);
        return make_stmt<Allocate>(totals, seq({begin, run}));
      });
    };
    const te::Tensor total = te::opaque("cumulate", in, {{wide, x.shape()}},
                                        [&](const std::vector<Buffer>& out) { return body(out[0]); })[0];
    return {cast_stage(total, x.dtype())};
  };
  op.examples = {{{tensor_type(f32, {2, 4})}, attributes_of({{"axis", 1}})},
                 {{tensor_type(f32, {2, 3, 70})}, attributes_of({{"axis", 1}})},
                 {{tensor_type(i32, {4, 2})}, attributes_of({{"axis", 0}, {"exclusive", 1}, {"reverse", 1}})},
                 {{tensor_type(f16, {4})}, attributes_of({{"axis", 0}, {"product", 1}})}};
  return op;
}

// Of a row's elements those that can be among the k first, by bins of their values between the least and the greatest:
// the bins that hold the first k, in the order of the elements.  Sorting has to look at these only; where those of the
// last bin are all equal, as saturated scores are, at as many of them as are wanted.
struct Contenders {
  static constexpr int64_t bins = 512;
  const Expr count, k;
  const bool largest;
  const Buffer range = scratch("range", f32, {Expr(2)});       // least and greatest, NaN aside
  const Buffer filled = scratch("filled", i64, {Expr(bins)});  // by bin
  const Buffer state = scratch("state", i64, {Expr(states)});
  const Buffer positions, values, sample;

  Contenders(const Expr& count, const Expr& k, DType dtype, bool largest)
      : count(count),
        k(k),
        largest(largest),
        positions(scratch("positions", i64, {count})),
        values(scratch("values", dtype, {count})),
        sample(scratch("sample", dtype, {Expr(1)})) {}

  // How many there are up to the last bin, and before it; of the last one how many are taken, and whether all are
  // equal.
  enum { number, last_bin, before, taken, is_equal, states };
  Expr get(int64_t which) const { return load(state, {Expr(which)}); }
  Stmt set(int64_t which, const Expr& value) const { return store(state, {Expr(which)}, value); }

  // The first ones are in bin 0.  In the order of values, which are never in a later bin than those that come after
  // them, whatever is rounded: NaN and what overflows are the greatest.
  Expr bin_of(const Expr& value) const {
    const Expr least = load(range, {Expr(0)}), greatest = load(range, {Expr(1)}), top = const_of(f32, bins - 1);
    const Expr at = (cast(f32, value) - least) * (const_of(f32, bins) / (greatest - least));
    const Expr bin = cast(i64, select(at < top, max(at, const_of(f32, 0)), top));  // NaN is no less
    return largest ? Expr(bins - 1) - bin : bin;
  }

  Stmt find(const std::function<Expr(const Expr& position)>& value) const {
    const auto each = [&](const std::function<Stmt(const Expr& value, const Expr& position)>& body) {
      return loops_over({count}, [&](const te::Indices& i) { return body(value(i[0]), i[0]); });
    };
    const auto bound = [&](int64_t end) { return load(range, {Expr(end)}); };
    const Stmt widen = each([&](const Expr& v, const Expr&) {
      const Expr x = cast(f32, v);
      return seq({store(range, {Expr(0)}, select(x < bound(0), x, bound(0))),
                  store(range, {Expr(1)}, select(x > bound(1), x, bound(1)))});
    });
    const Stmt fill = each([&](const Expr& v, const Expr&) {
      const Expr bin = bin_of(v);
      return store(filled, {bin}, load(filled, {bin}) + 1);
    });
    const Stmt cut = loops_over({Expr(bins)}, [&](const te::Indices& bin) {
      return make_stmt<If>(get(number) < k, seq({set(before, get(number)), set(last_bin, bin[0]),
                                                 set(number, get(number) + load(filled, bin))}));
    });
    const auto is_last = [&](const Expr& v) { return equal(bin_of(v), get(last_bin)); };
    // `taken` says whether there is a sample.
    const Stmt compare = each([&](const Expr& v, const Expr&) {
      const Stmt look = make_stmt<If>(equal(get(taken), 0), seq({store(sample, {Expr(0)}, v), set(taken, 1)}),
                                      make_stmt<If>(not_equal(v, load(sample, {Expr(0)})), set(is_equal, 0)));
      return make_stmt<If>(is_last(v), look);
    });
    const Stmt are_equal = make_stmt<If>(get(number) > k * 2, seq({set(is_equal, 1), compare, set(taken, 0)}));
    const Stmt collect = each([&](const Expr& v, const Expr& position) {
      const Stmt put = seq(
          {store(positions, {get(number)}, position), store(values, {get(number)}, v), set(number, get(number) + 1)});
      const Expr is_wanted = equal(get(is_equal), 0) || get(taken) < k - get(before);
      const Stmt put_last = make_stmt<If>(is_wanted, seq({put, set(taken, get(taken) + 1)}));
      return make_stmt<If>(bin_of(v) < get(last_bin), put, make_stmt<If>(is_last(v), put_last));
    });
    const float infinity = std::numeric_limits<float>::infinity();
    const Stmt clear = loops_over({Expr(bins)}, [&](const te::Indices& bin) { return store(filled, bin, Expr(0)); });
    return seq({store(range, {Expr(0)}, const_of(f32, infinity)), store(range, {Expr(1)}, const_of(f32, -infinity)),
                widen, clear, fill, set(number, 0), set(last_bin, -1), set(before, 0), set(taken, 0), set(is_equal, 0),
                cut, are_equal, set(number, 0), collect});
  }

  Stmt allocated(Stmt body) const {
    for (const Buffer& buffer : {range, filled, state, positions, values, sample})
      body = make_stmt<Allocate>(buffer, body);
    return body;
  }
};

// Result j is the best element that comes after result j - 1 in the order (value, index).  NaN is the largest.
OpDef top_k_op() {
  OpDef op;
  op.name = "top_k";
  op.kind = OpKind::opaque;
  op.doc = "The k largest (or smallest) elements along an axis, best first, and their indices; of equals the first.";
  op.input_names = {"x"};
  op.attributes = {{"k", std::vector<Expr>{}, true, "how many"},
                   {"axis", -1, false, "the axis that is searched"},
                   {"largest", 1, false, "0: the smallest"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    TensorType y = c.inputs[0];
    c.require(!y.dtype.is_bool(), "takes numbers");
    const int axis = normal_axis(c, c.attributes.get_int("axis"), y.rank());
    const std::vector<Expr>& k = c.attributes.get_dims("k");
    c.require(k.size() == 1 && as_int(k[0]).value_or(0) >= 0, "k is one number, not negative");
    c.require_at_most(k[0], y.shape[axis], "k is at most the extent of the axis");
    y.shape[axis] = k[0];
    return {y, {i64, y.shape}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const bool largest = c.attributes.get_int("largest") != 0;
    auto is_before = [&](const Expr& a, const Expr& b) { return largest ? comes_before(b, a) : comes_before(a, b); };
    // Few of few are found one after the other, others by sorting.
    constexpr int64_t few = 512;  // comparisons
    const Expr count = x.shape()[axis], k = c.outputs[0].shape[axis];
    const auto by_sorting = [&](const std::vector<Buffer>& out) {
      std::vector<Expr> rows = c.outputs[0].shape;
      rows[axis] = 1;
      return rows_in_parallel(rows, count, [&](const te::Indices& s) {
        const auto from = [&](const Expr& position) {
          te::Indices i = s;
          i[axis] = position;
          return i;
        };
        const Contenders contenders(count, k, x.dtype(), largest);
        const Buffer order = scratch("order", i64, {Expr(2), count});
        const auto value = [&](const Expr& i) { return load(contenders.values, {i}); };
        const Stmt sort = merge_sort(order, contenders.get(Contenders::number),
                                     [&](const Expr& a, const Expr& b) { return is_before(value(a), value(b)); });
        const Stmt take = loops_over({k}, [&](const te::Indices& i) {
          const Expr chosen = load(order, {Expr(0), i[0]});
          return seq({store(out[0], from(i[0]), value(chosen)),
                      store(out[1], from(i[0]), load(contenders.positions, {chosen}))});
        });
        const Stmt find = contenders.find([&](const Expr& position) { return x(from(position)); });
        return contenders.allocated(make_stmt<Allocate>(order, seq({find, sort, take})));
      });
    };
    if (!is_const_int(k, 1) && as_int(simplify(k * count)).value_or(few + 1) > few)
      return te::opaque("top_k", in, {{x.dtype(), c.outputs[0].shape}, {i64, c.outputs[1].shape}}, by_sorting);
    return te::opaque(
        "top_k", in, {{x.dtype(), c.outputs[0].shape}, {i64, c.outputs[1].shape}}, [&](const std::vector<Buffer>& out) {
          return loops_over(c.outputs[0].shape, [&](const te::Indices& s) {
            const Var candidate("candidate");
            te::Indices from = s, previous = s;
            from[axis] = candidate;
            previous[axis] = s[axis] - 1;
            const Expr has_previous = s[axis] >= 1;
            const Expr value = x(from), best = load(out[0], s), best_index = load(out[1], s);
            const Expr last = load(out[0], previous, has_previous), last_index = load(out[1], previous, has_previous);
            const Expr is_free =
                !has_previous || is_before(last, value) || (!is_before(value, last) && last_index < Expr(candidate));
            const Expr is_better = is_free && (best_index < 0 || is_before(value, best));
            const Stmt take = seq({store(out[0], s, value), store(out[1], s, candidate)});
            return seq({store(out[0], s, zero_of(x.dtype())), store(out[1], s, Expr(-1)),
                        make_stmt<For>(candidate, x.shape()[axis], LoopKind::serial, make_stmt<If>(is_better, take))});
          });
        });
  };
  op.examples = {
      {{tensor_type(f32, {2, 5})}, attributes_of({{"k", std::vector<Expr>{3}}})},
      {{tensor_type(i32, {4, 2})}, attributes_of({{"k", std::vector<Expr>{2}}, {"axis", 0}, {"largest", 0}})},
      {{tensor_type(f32, {2, 70})}, attributes_of({{"k", std::vector<Expr>{11}}})}};
  return op;
}

// Sorted by one column after the other, the last one first: each sort leaves equals in the order of the one before.
OpDef row_order_op() {
  OpDef op;
  op.name = "row_order";
  op.kind = OpKind::opaque;
  op.doc =
      "Positions of the rows of a matrix in ascending order: that of the first column, of equals there that of the "
      "second …; of equal rows the first one first, NaN last.";
  op.input_names = {"x"};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[0].rank() == 2 && !c.inputs[0].dtype.is_bool(), "takes a matrix of numbers");
    return {{i64, {c.inputs[0].shape[0]}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const Expr rows = x.shape()[0], columns = x.shape()[1];
    return te::opaque("row_order", in, {{i64, c.outputs[0].shape}}, [&](const std::vector<Buffer>& out) {
      const Buffer order = scratch("order", i64, {Expr(2), rows}), next = scratch("next", i64, {rows});
      const auto row = [&](const Expr& position) { return load(out[0], {position}); };
      const Stmt begin = loops_over({rows}, [&](const te::Indices& i) { return store(out[0], i, i[0]); });
      const Stmt sort = loops_over({columns}, [&](const te::Indices& i) {
        const auto at = [&](const Expr& position) { return x({row(position), columns - 1 - i[0]}); };
        const auto is_before = [&](const Expr& a, const Expr& b) { return comes_before(at(a), at(b)); };
        const Stmt take =
            loops_over({rows}, [&](const te::Indices& k) { return store(next, k, row(load(order, {Expr(0), k[0]}))); });
        const Stmt put = loops_over({rows}, [&](const te::Indices& k) { return store(out[0], k, load(next, k)); });
        return seq({merge_sort(order, rows, is_before), take, put});
      });
      return make_stmt<Allocate>(order, make_stmt<Allocate>(next, seq({begin, sort})));
    });
  };
  op.examples = {{{tensor_type(f32, {6, 1})}},
                 {{tensor_type(i32, {7, 3})},
                  {},
                  {int_array({2, 1, 0, 2, 0, 3, 1, 1, 1, 2, 1, 0, 2, 0, 2, 1, 1, 1, 0, 5, 5}, i32).reshape({7, 3})}}};
  return op;
}

}  // namespace

std::vector<OpDef> scan_family() {
  return {scatter_elements_op(), scatter_nd_op(), scan_op(), top_k_op(), row_order_op()};
}

}  // namespace tw::relay
