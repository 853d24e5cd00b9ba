#include "targets/cuda/tile_copies.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "targets/cuda/fragments.h"
#include "tensor_ir/arith/region.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/pipeline.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/type_rules.h"

namespace tw::cuda {
namespace {

const Call* tile_of(const std::vector<Expr>& indices) {
  const auto* at = indices.size() == 1 ? indices[0].as<Call>() : nullptr;
  return at && at->intrinsic == Intrinsic::tile_at ? at : nullptr;
}

const Load* source_of(const Store& store) {
  const auto* load = store.value.as<Load>();
  const bool is_copy = load && store.buffer->scope == Scope::shared && load->buffer->scope == Scope::global;
  return is_copy && tile_of(store.indices) && tile_of(load->indices) ? load : nullptr;
}

// Of the terms that it takes.
template <class F>
Expr sum_of(const LinearForm& form, F&& takes) {
  Expr sum = 0;
  for (const auto& [term, coefficient] : form.terms)
    if (takes(term, coefficient)) sum = sum + term * Expr(coefficient);
  return sum;
}

// What the expression is a multiple of, whatever its terms are.
int64_t divisor_of(const Expr& e) {
  const LinearForm form = linear_form(e);
  int64_t divisor = std::abs(form.constant);
  for (const auto& [term, coefficient] : form.terms) divisor = std::gcd(divisor, coefficient);
  return divisor;
}

class Finder {
 public:
  explicit Finder(const Func& kernel) : kernel_(kernel) {
    for (const Var& parameter : kernel.parameters) {
      const DimensionBounds bounds = dimension_bounds(parameter);
      ranges_.bind(parameter, {bounds.low, bounds.high});
    }
  }

  TileCopies run() {
    walk(kernel_.body, ranges_);
    if (found_.copies.empty()) return {};
    visit(kernel_.body, [&](const Call& call) {
      if (call.intrinsic == Intrinsic::wait_copies)
        found_.groups = std::max(found_.groups, as_int(call.arguments[0]).value_or(0) + 1);
    });
    if (counters_suffice()) found_.versions = versions();
    return std::move(found_);
  }

 private:
  // Threads share nothing but what is copied as tiles and multiplied, by one statement: they meet for nothing else.
  bool counters_suffice() const {
    std::set<Buffer> read, written;
    int products = 0;
    bool computes_with_tiles = false;
    visit(kernel_.body, [&](const Store& store) {
      if (found_.copies.count(&store)) return;
      written.insert(store.buffer);
      const auto* call = store.value.as<Call>();
      if (call && is_asynchronous(call->intrinsic)) return void(++products);
      visit(store.value, [&](const Load& load) { computes_with_tiles |= load.buffer->scope == Scope::shared; });
    });
    visit(kernel_.body, [&](const Load& load) {
      if (load.buffer->scope == Scope::global) read.insert(load.buffer);
    });
    return products == 1 && !computes_with_tiles && !stores_in_shared(kernel_.body, found_) &&
           std::none_of(written.begin(), written.end(), [&](const Buffer& buffer) { return read.count(buffer) > 0; });
  }

  // Of what the loop copies whose copies a warp of its own is to make.
  int64_t versions() const {
    int64_t versions = 0;
    visit(kernel_.body, [&](const For& loop) {
      const auto attribute = loop.attributes.find(copying_warp_attribute);
      if (attribute != loop.attributes.end()) versions = std::get<int64_t>(attribute->second);
    });
    return versions;
  }

  void walk(const Stmt& s, const Assumptions& ranges) {
    const auto* store = s.as<Store>();
    if (const Load* from = store ? source_of(*store) : nullptr)
      found_.copies.emplace(s.get(), copy(*store, *from, ranges));
    Assumptions inner = ranges;
    if (const auto* loop = s.as<For>()) inner.bind_range(loop->var, loop->extent);
    if (const auto* choice = s.as<If>(); choice && !choice->else_body.is_defined()) inner.assume(choice->condition);
    for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { walk(child, inner); });
  }

  [[noreturn]] void refuse(const Store& store, const std::string& why) const {
    throw Error(ErrorCode::lower, kernel_.name + " copies a tile of `" + store.value.as<Load>()->buffer->name +
                                      "` that is no box of it: " + why + ": " +
                                      to_text(store.value.as<Load>()->indices[0]) +
                                      "\n  help: copy it element by element");
  }

  bool is_of_parameters(const Expr& e) const {
    const std::vector<Var> vars = free_vars(e);
    return std::all_of(vars.begin(), vars.end(), [&](const Var& var) {
      return std::find(kernel_.parameters.begin(), kernel_.parameters.end(), var) != kernel_.parameters.end();
    });
  }

  // What is left of a dimension from a coordinate on, as both: a number in what is left is of either, so the coordinate
  // has this one.
  struct Along {
    Expr extent, coordinate;
  };
  Along along(const Expr& left, int64_t number) const {
    const Expr extent = sum_of(linear_form(left), [&](const Expr& term, int64_t) { return is_of_parameters(term); }) +
                        Expr(linear_form(left).constant + number);
    return {simplify(extent), simplify(extent - left)};
  }

  // Where a tile begins in its tensor; and what neither row nor column says of that, in elements.
  struct Corner {
    Along row, column;
    Expr others = 0;
  };
  Corner corner_of(const Store& store, const Load& load, int64_t row_stride, const Assumptions& ranges) const {
    const Call& from = *tile_of(load.indices);
    const Expr &base = from.arguments[0], stride = row_stride;
    const auto* within = load.predicate.is_defined() ? load.predicate.as<Call>() : nullptr;
    const auto is_guarded = [&](size_t argument) {
      return within && !structural_equal(within->arguments[argument], within->arguments[argument + 1]);
    };
    const LinearForm form = linear_form(base);
    Corner corner;
    if (is_guarded(2)) {
      corner.column = along(within->arguments[2], form.constant % row_stride);
    } else {
      corner.column = {stride, sum_of(form, [&](const Expr&, int64_t c) { return c % row_stride != 0; }) +
                                   Expr(form.constant % row_stride)};
      if (!can_prove(corner.column.coordinate + from.arguments[4] <= stride, ranges))
        refuse(store, "a row of it lies in two");
    }
    const Expr in_rows = base - corner.column.coordinate;
    if (is_guarded(0)) {
      corner.row = along(within->arguments[0], form.constant / row_stride);
      corner.others = simplify(in_rows - corner.row.coordinate * stride, ranges);
    } else {
      corner.row = {floor_div(elements_of(load.buffer), stride), simplify(floor_div(in_rows, stride), ranges)};
    }
    return corner;
  }

  TileCopy copy(const Store& store, const Load& load, const Assumptions& ranges) {
    const Call &from = *tile_of(load.indices), &to = *tile_of(store.indices);
    const int64_t rows = *as_int(from.arguments[2]), columns = *as_int(from.arguments[4]);
    const int64_t bytes = load.buffer->dtype.bytes();
    const auto row_stride = as_int(from.arguments[1]);
    if (!row_stride || *row_stride * bytes % piece_bytes != 0 || !is_const_int(from.arguments[3], 1))
      refuse(store, "its rows are no multiples of 16 bytes apart");
    if (as_int(to.arguments[1]) != columns || !is_const_int(to.arguments[3], 1))
      refuse(store, "there are gaps between its rows in shared memory");
    const auto [row, column, others] = corner_of(store, load, *row_stride, ranges);

    TileCopy copy;
    copy.from = load.buffer, copy.to = store.buffer;
    TensorMapOfBuffer map;
    map.buffer = load.buffer, map.extents = {column.extent};
    copy.place = to.arguments[0];
    copy.coordinates = {column.coordinate};
    const auto add = [&](const Expr& extent, const Expr& stride, int64_t box, const Expr& coordinate) {
      map.extents.push_back(simplify(extent));
      map.strides.push_back(simplify(stride * Expr(bytes)));
      map.box.push_back(box);
      copy.coordinates.push_back(coordinate);
    };
    const int64_t width = std::min(columns, bank_bytes / bytes);
    map.box = {width};
    map.swizzle_bytes = width * bytes;
    if (map.swizzle_bytes < 32 || columns % width != 0 ||
        !std::has_single_bit(static_cast<uint64_t>(map.swizzle_bytes)))
      refuse(store, "its rows are no 32, 64 or multiple of 128 bytes");
    if (const auto turned = turned_rows(kernel_.body, store.buffer)) {
      constexpr int64_t pair = 2, eight = 8;
      if (rows != *turned || divisor_of(row.coordinate) % eight != 0) refuse(store, "its rows are turned otherwise");
      add(Expr(pair), Expr(*row_stride), pair, Expr(0));
      add(Expr(eight / pair), Expr(pair * *row_stride), 1, Expr(0));
      add(floor_div(row.extent, Expr(eight)), Expr(eight * *row_stride), rows / eight,
          simplify(floor_div(row.coordinate, Expr(eight)), ranges));
      copy.boxes = eight / pair, copy.step = 1, copy.along = 2;
      copy.elements_of_box = rows / copy.boxes * columns;
    } else {
      add(row.extent, Expr(*row_stride), rows, row.coordinate);
      copy.boxes = columns / width, copy.step = width, copy.along = 0;
      copy.elements_of_box = rows * width;
    }
    if (!is_const_int(others, 0)) add_others(store, others, row.extent, *row_stride, add);
    for (const int64_t box : map.box)
      if (box > most_box_elements) refuse(store, "it has more than 256 rows");
    copy.map = number_of(std::move(map));
    return copy;
  }

  // Rows that a guard ends are those of one of several matrices.
  template <class Add>
  void add_others(const Store& store, const Expr& others, const Expr& rows, int64_t row_stride, Add&& add) const {
    const int64_t stride = divisor_of(others);
    if (!can_prove(rows * Expr(row_stride) <= Expr(stride), ranges_) || stride % row_stride != 0)
      refuse(store, "matrices of it do not lie one after the other");
    const Expr elements = elements_of(store.value.as<Load>()->buffer);
    add(floor_div(elements, Expr(stride)), Expr(stride), 1, simplify(floor_div(others, Expr(stride)), ranges_));
  }

  static Expr elements_of(const Buffer& buffer) { return buffer->shape.at(0); }  // it is flat

  size_t number_of(TensorMapOfBuffer map) {
    const auto equal = [](const std::vector<Expr>& a, const std::vector<Expr>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const Expr& x, const Expr& y) { return structural_equal(x, y); });
    };
    for (size_t i = 0; i < found_.maps.size(); ++i) {
      const TensorMapOfBuffer& known = found_.maps[i];
      if (known.buffer == map.buffer && equal(known.extents, map.extents) && equal(known.strides, map.strides) &&
          known.box == map.box && known.swizzle_bytes == map.swizzle_bytes)
        return i;
    }
    found_.maps.push_back(std::move(map));
    return found_.maps.size() - 1;
  }

  const Func& kernel_;
  Assumptions ranges_;
  TileCopies found_;
};

}  // namespace

TileCopies find_tile_copies(const Func& kernel) {
  return Finder(kernel).run();
}

bool stores_in_shared(const Stmt& body, const TileCopies& tiles) {
  bool found = false;
  visit(body,
        [&](const Store& store) { found |= store.buffer->scope == Scope::shared && !tiles.copies.count(&store); });
  return found;
}

}  // namespace tw::cuda
