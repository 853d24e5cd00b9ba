#include "targets/cuda/fragments.h"

#include <algorithm>
#include <bit>

#include "tensor_ir/arith/region.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/type_rules.h"

namespace tw::cuda {
namespace {

const Call* product_of(const Store& store) {
  const auto* call = store.value.as<Call>();
  return call && kind_of(call->intrinsic) == IntrinsicKind::fragment ? call : nullptr;
}

TileSizes sizes_of(const Call& product) {
  return *tile_sizes(product.dtype, product.arguments[1].dtype(), product.arguments[2].dtype());
}

// Where a matrix lies in flat memory.
struct Place {
  Expr base;
  int64_t row_stride, column_stride;
  bool is_transposed() const { return row_stride == 1; }
  int64_t line() const { return is_transposed() ? column_stride : row_stride; }  // elements of a line of memory
};

Place place_of(const std::vector<Expr>& indices) {
  const auto& at = *indices.at(0).as<Call>();
  check(at.intrinsic == Intrinsic::tile_at, "emit_cuda: an operand of a fragment product names its place");
  return {at.arguments[0], as_int(at.arguments[1]).value_or(0), *as_int(at.arguments[3])};
}

std::string text(int64_t value) {
  return std::to_string(value);
}

}  // namespace

bool FragmentEmitter::is_product(const Store& store) {
  return product_of(store) != nullptr;
}

void FragmentEmitter::find_products(const Stmt& body) {
  visit(body, [&](const Store& store) {
    const Call* product = product_of(store);
    if (!product) return;
    const auto [m, n, k] = sizes_of(*product);
    const int64_t step = mma_k_bytes / product->arguments[1].dtype().element().bytes();
    if (m % mma_m != 0 || n % (2 * mma_n) != 0 || k % step != 0)
      fail("multiplies fragments of " + text(m) + " × " + text(n) + " × " + text(k),
           "rows and columns are multiples of 16, steps of " + text(step));
    const Place sums = place_of(store.indices);
    if (store.buffer->scope != Scope::fragment || !is_const_int(sums.base, 0) || sums.row_stride != n)
      fail("multiplies into `" + store.buffer->name + "` at " + to_text(store.indices[0]),
           "keep the sums of a warp, and nothing else, in a buffer in scope fragment");
    fragments_[store.buffer] = {m, n};
    find_swizzle(product->arguments[1]);
    find_swizzle(product->arguments[2]);
  });
}

void FragmentEmitter::find_squares(const Stmt& s, const Var& thread_x) {
  constexpr int64_t side = 32;
  constexpr int shift = std::countr_zero(static_cast<uint64_t>(side));
  const auto look = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer->scope != Scope::shared || !thread_x.is_defined() || indices[0].dtype().lanes > 1) return;
    const auto shape = const_shape(buffer);
    if (!shape || element_count(*shape) % side != 0) return;  // places stay within a row: all rows are whole
    const auto affine = as_affine(indices[0]);
    if (affine && affine->coefficient(thread_x) == side) swizzles_.emplace(buffer, Swizzle{shift, side - 1, 0});
  };
  if (const auto* store = s.as<Store>()) look(store->buffer, store->indices);
  const auto* loop = s.as<For>();
  const bool is_bound = loop && loop->loop_kind == LoopKind::thread && loop->thread == ThreadAxis::thread_x;
  for_each_child(
      s, [&](const Expr& e) { visit(e, [&](const Load& load) { look(load.buffer, load.indices); }); },
      [&](const Stmt& child) { find_squares(child, is_bound ? loop->var : thread_x); });
}

void FragmentEmitter::find_swizzle(const Expr& operand) {
  const auto& load = *operand.as<Load>();
  const Place place = place_of(load.indices);
  const int64_t bytes = load.buffer->dtype.bytes(), piece = piece_bytes / bytes, line = place.line();
  if (load.buffer->scope != Scope::shared || (place.row_stride != 1 && place.column_stride != 1) || line % piece != 0)
    fail("reads `" + load.buffer->name + "` into a fragment as " + to_text(load.indices[0]),
         "stage it in shared memory, with rows of a multiple of 16 bytes");
  if (bytes == 1 && place.is_transposed())
    fail("reads bytes of `" + load.buffer->name + "` across its rows into a fragment",
         "stage them with rows along the sum");
  const auto pieces = static_cast<uint64_t>(line / piece);
  std::optional<Swizzle> found;
  if (std::has_single_bit(pieces) && pieces > 1) {
    const int shift = std::countr_zero(std::max<uint64_t>(pieces, 8)),
              to = std::countr_zero(static_cast<uint64_t>(piece));
    found = Swizzle{shift + to, static_cast<int>(std::min<uint64_t>(pieces, 8)) - 1, to};
  }
  const auto [known, is_new] = swizzles_.emplace(load.buffer, found);
  if (!is_new && (!found || !known->second || found->from != known->second->from)) known->second.reset();
}

std::string FragmentEmitter::Swizzle::of(const std::string& index) const {
  return "tw_swizzle<" + text(from) + ", " + text(mask) + ", " + text(to) + ">(" + index + ")";
}

int64_t FragmentEmitter::own_elements(const Buffer& fragment) const {
  const auto shape = fragments_.find(fragment);
  if (shape == fragments_.end()) fail("has a fragment `" + fragment->name + "` that nothing is multiplied into");
  return shape->second.m * shape->second.n / (lanes_x * lanes_y);
}

void FragmentEmitter::enter(ThreadAxis axis, const Var& var) {
  if (axis == ThreadAxis::thread_x) lane_x_ = var;
  if (axis == ThreadAxis::thread_y) lane_y_ = var;
}

bool FragmentEmitter::are_neighbours(const Expr& vector) const {
  const auto* lanes = vector.as<Ramp>();
  const LinearForm form = linear_form(lanes ? lanes->base : vector);
  const auto of_lane = std::find_if(form.terms.begin(), form.terms.end(),
                                    [&](const auto& term) { return term.first.get() == lane_x_.get(); });
  return of_lane != form.terms.end() && of_lane->second == vector.dtype().lanes;
}

bool FragmentEmitter::is_scattered(const Buffer& buffer, int64_t bytes) const {
  const auto swizzle = swizzles_.find(buffer);
  if (buffer->scope == Scope::fragment) return true;
  if (swizzle == swizzles_.end() || !swizzle->second) return false;
  return bytes > (int64_t{buffer->dtype.bytes()} << swizzle->second->to);
}

std::string FragmentEmitter::element_index(const Buffer& buffer, const Expr& index, const std::string& l) {
  const auto swizzle = swizzles_.find(buffer);
  if (swizzle != swizzles_.end() && swizzle->second) {
    if (index.dtype().lanes > 1) return swizzle->second->of(ExprEmitter::element_index(buffer, index, l));
    // Whole periods stay as they are, so that the rest is the same in each step of a loop.
    const LinearForm form = linear_form(index);
    Expr periods = 0, rest = form.constant;
    for (const auto& [term, coefficient] : form.terms) {
      Expr& part = multiple_of(term * coefficient) % swizzle->second->period() == 0 ? periods : rest;
      part = part + term * coefficient;
    }
    const std::string within = swizzle->second->of(ExprEmitter::element_index(buffer, rest, l));
    return is_const_int(periods, 0) ? within : ExprEmitter::element_index(buffer, periods, l) + " + " + within;
  }
  const auto fragment = fragments_.find(buffer);
  if (fragment == fragments_.end()) return ExprEmitter::element_index(buffer, index, l);
  const auto& [m, n] = fragment->second;
  const auto* lanes = index.as<Ramp>();
  const Expr first = lanes ? lanes->base : index;
  const Substitution zeros = {{lane_x_, Expr(0)}, {lane_y_, Expr(0)}};
  const Expr own = simplify(substitute(first, zeros), ranges_);
  const bool are_neighbours = !lanes || (is_const_int(lanes->stride, 1) && lanes->dtype.lanes == 2 &&
                                         is_known_equal(floor_mod(own, Expr(2)), Expr(0), ranges_));
  if (!are_neighbours || !is_known_equal(first - own, lane_y_ * Expr(n) + lane_x_ * Expr(2), ranges_))
    fail("uses elements of the fragment `" + buffer->name + "` that are not the thread's: " + to_text(index),
         "bind rows modulo 8 to thread.y, and pairs of columns modulo 8 to thread.x");
  const Expr i = floor_div(own, Expr(n)), j = floor_mod(own, Expr(n));
  const Expr tile = floor_div(i, Expr(mma_m)) * Expr(n / mma_n) + floor_div(j, Expr(mma_n));
  const Expr within = floor_div(floor_mod(i, Expr(mma_m)), Expr(lanes_y)) * Expr(2) + floor_mod(j, Expr(2));
  const std::string element = scalar(simplify(tile * Expr(4) + within, ranges_), true);
  return lanes ? element + " + " + l : element;
}

std::string FragmentEmitter::row_address(const Load& operand, bool is_a) {
  const Place place = place_of(operand.indices);
  // Rows of the lane's matrix, and steps along k: which of its two halves along each, and which of eight.
  const std::string first = "tw_lane / 8 % 2 * ", second = "tw_lane / 16 * ", line = "tw_lane % 8";
  std::string row = (is_a ? first : second) + "8";
  std::string step = (is_a ? second : first) + text(piece_bytes / operand.buffer->dtype.bytes());
  (place.is_transposed() ? step : row) += " + " + line;
  const std::string stride = text(place.line());
  const std::string along = place.is_transposed() ? "k * " + stride : "i * 16 * " + stride;
  const std::string within = place.is_transposed() ? "(" + step + ") * " + stride + " + i * 16 + " + row
                                                   : "(" + row + ") * " + stride + " + k + " + step;
  const std::string base = scalar(place.base, true);
  const auto& swizzle = swizzles_.at(operand.buffer);
  std::string index;
  if (!swizzle) {
    index = base + " + " + along + " + " + within;
  } else if (multiple_of(place.base) % swizzle->period() == 0 && 16 * place.line() % swizzle->period() == 0) {
    index = base + " + " + along + " + " + swizzle->of(within);  // whole periods stay as they are
  } else {
    index = swizzle->of(base + " + " + along + " + " + within);
  }
  return "&" + name_of(operand.buffer) + "[" + index + "]";
}

void FragmentEmitter::multiply(const Store& store) {
  const Call& product = *product_of(store);
  const auto [m, n, k] = sizes_of(product);
  const auto &a = *product.arguments[1].as<Load>(), &b = *product.arguments[2].as<Load>();
  const std::string a_name = fresh("a"), b_name = fresh("b");
  const auto load = [&](const Load& operand, const std::string& name, int64_t rows, bool is_a) {
    line("#pragma unroll");
    line("for (int i = 0; i < " + text(rows / 16) + "; ++i) tw_ldmatrix" +
         (place_of(operand.indices).is_transposed() ? "_transposed" : "") + "(&" + name + "[4 * i], " +
         row_address(operand, is_a) + ");");
  };
  line("{");
  ++depth_;
  line("u32 " + a_name + "[" + text(m / 4) + "], " + b_name + "[" + text(n / 4) + "];");
  line("#pragma unroll");
  line("for (int k = 0; k < " + text(k) + "; k += " + text(mma_k_bytes / a.buffer->dtype.bytes()) + ") {");
  ++depth_;
  load(a, a_name, m, true);
  load(b, b_name, n, false);
  line("#pragma unroll");
  line("for (int i = 0; i < " + text(m / mma_m) + "; ++i) {");
  ++depth_;
  line("#pragma unroll");
  line("for (int j = 0; j < " + text(n / mma_n) + "; ++j)");
  line("  tw_" + to_text(product.intrinsic) + "(&" + name_of(store.buffer) + "[(i * " + text(n / mma_n) +
       " + j) * 4], &" + a_name + "[4 * i], &" + b_name + "[2 * j]);");
  --depth_;
  line("}");
  --depth_;
  line("}");
  --depth_;
  line("}");
}

}  // namespace tw::cuda
