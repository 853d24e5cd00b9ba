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

// ldmatrix turns elements of 16 bits only.
bool is_read_by_element(const Load& operand) {
  return operand.buffer->dtype.bytes() == 4 && place_of(operand.indices).is_transposed();
}

// Neighbours of a row of sums, which one thread holds, are multiplied in the places of terms four apart.
bool has_terms_in_pairs(const Call& product) {
  const Buffer& a = product.arguments[1].as<Load>()->buffer;
  return a->scope == Scope::fragment && a->dtype.bytes() == 4;
}

std::string text(int64_t value) {
  return std::to_string(value);
}

int64_t block_columns(DType dtype) {
  return bank_bytes / dtype.bytes();
}

constexpr int64_t wide_columns = 8, wide_rows = lanes_x * wide_columns;

// `n`: columns of the fragment.
bool has_wide_uses(const Stmt& body, const Buffer& fragment, int64_t n) {
  if (n < wide_rows || !std::has_single_bit(static_cast<uint64_t>(n))) return false;
  bool found = false;
  const auto look = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
    found |= buffer == fragment && indices[0].dtype().lanes == wide_columns;
  };
  visit(
      body, [&](const Load& load) { look(load.buffer, load.indices); },
      [&](const Store& store) { look(store.buffer, store.indices); });
  return found;
}

int log2(int64_t power) {
  return std::countr_zero(static_cast<uint64_t>(power));
}

}  // namespace

std::optional<int64_t> turned_rows(const Stmt& body, const Buffer& matrix) {
  std::optional<int64_t> rows;
  visit(body, [&](const Store& store) {
    const Call* product = product_of(store);
    if (!product || product->arguments[2].as<Load>()->buffer != matrix) return;
    const int64_t n = sizes_of(*product).n;
    if (has_wide_uses(body, store.buffer, n)) rows = n;
  });
  return rows;
}

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
    const bool is_of_group = is_asynchronous(product->intrinsic);
    if (is_of_group && (m != mma_m || (n != 64 && n != 128 && n != 256)))
      fail("multiplies fragments of " + text(m) + " × " + text(n) + " by groups of warps",
           "each warp has 16 rows, and 64, 128 or 256 columns");
    const int64_t columns = has_wide_uses(body, store.buffer, n) ? wide_columns : 2;
    fragments_[store.buffer] = {m, n, columns, is_of_group};
    const auto& a = *product->arguments[1].as<Load>();
    if (a.buffer->scope == Scope::fragment && !is_of_group) {
      const Place rows = place_of(a.indices);
      if (!is_const_int(rows.base, 0) || rows.row_stride != k || rows.column_stride != 1)
        fail("multiplies `" + a.buffer->name + "`, a fragment, at " + to_text(a.indices[0]),
             "keep the rows of a warp, and nothing else, in a buffer in scope fragment");
      fragments_[a.buffer] = {m, k, 2, false};
    } else {
      find_swizzle(product->arguments[1], *product, false);
    }
    find_swizzle(product->arguments[2], *product, columns == wide_columns);
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

void FragmentEmitter::find_swizzle(const Expr& operand, const Call& product, bool is_turned) {
  const auto& load = *operand.as<Load>();
  const Place place = place_of(load.indices);
  const int64_t bytes = load.buffer->dtype.bytes(), piece = piece_bytes / bytes, line = place.line();
  const int64_t exchanged = is_read_by_element(load) ? lanes_y : piece, of_banks = bank_bytes / bytes / exchanged;
  if (load.buffer->scope != Scope::shared || (place.row_stride != 1 && place.column_stride != 1) || line % piece != 0)
    fail("reads `" + load.buffer->name + "` into a fragment as " + to_text(load.indices[0]),
         "stage it in shared memory, with rows of a multiple of 16 bytes; rows of sums may be in a fragment");
  if (bytes == 1 && place.is_transposed())
    fail("reads bytes of `" + load.buffer->name + "` across its rows into a fragment",
         "stage them with rows along the sum");
  const bool is_in_pairs = has_terms_in_pairs(product);
  if (is_in_pairs && !place.is_transposed())
    fail("multiplies a fragment by rows of `" + load.buffer->name + "` along the sum, of 32 bits",
         "stage it with rows across the sum");
  const auto pieces = static_cast<uint64_t>(line / exchanged);
  const int64_t block = block_columns(load.buffer->dtype);
  const bool is_of_group = is_asynchronous(product.intrinsic);
  std::optional<Swizzle> found;
  if (line % exchanged == 0 && std::has_single_bit(pieces) && pieces > 1) {
    const int shift = std::countr_zero(std::max<uint64_t>(pieces, of_banks)), to = log2(exchanged);
    found = Swizzle{shift + to + (is_in_pairs ? 1 : 0), static_cast<int>(std::min<uint64_t>(pieces, of_banks)) - 1, to};
    if (is_of_group && line > block) found = Swizzle{log2(block), 7, to, log2(line), log2(sizes_of(product).k)};
  }
  if (is_turned) {
    if (!found || place.is_transposed() || found->line)
      fail("uses eight columns at a time of what `" + load.buffer->name + "` gives, which is read as " +
               to_text(load.indices[0]),
           "stage it with rows of a power of 2 along k, or use two columns at a time");
    found->turned = log2(line), found->turned_rows = log2(sizes_of(product).n);
  }
  const bool fits_group = found && (place.is_transposed() ? line % block == 0 : line <= block);
  if (is_of_group && !fits_group)
    fail("reads `" + load.buffer->name + "` for a group of warps as " + to_text(load.indices[0]),
         "stage it with rows of 32, 64 or 128 bytes along k, or of 16 bits and a power of 2 from 64 on across");
  const auto [known, is_new] = swizzles_.emplace(load.buffer, found);
  if (is_new || (known->second && found == known->second)) return;
  if (is_of_group) fail("reads `" + load.buffer->name + "` in two ways", "stage it twice");
  known->second.reset();
}

std::string FragmentEmitter::Swizzle::of(const std::string& index) const {
  std::string place = index;
  if (line) place = "tw_columns<" + text(line) + ", " + text(rows) + ">(" + place + ")";
  if (turned) place = "tw_turn<" + text(turned) + ", " + text(turned_rows) + ">(" + place + ")";
  return "tw_swizzle<" + text(from) + ", " + text(mask) + ", " + text(to) + ">(" + place + ")";
}

int64_t FragmentEmitter::Swizzle::period() const {
  if (line) return int64_t{1} << (line + rows);
  return std::max(int64_t{mask + 1} << from, turned ? int64_t{1} << (turned + turned_rows) : 0);
}

bool FragmentEmitter::is_of_group(const Buffer& fragment) const {
  const auto shape = fragments_.find(fragment);
  return shape != fragments_.end() && shape->second.is_of_group;
}

void FragmentEmitter::require_box_order(const Buffer& matrix) const {
  const auto swizzle = swizzles_.find(matrix);
  const int64_t bytes_of_rows = swizzle == swizzles_.end() || !swizzle->second
                                    ? 0
                                    : (int64_t{1} << swizzle->second->from) * matrix->dtype.bytes();
  if (bytes_of_rows != bank_bytes)  // whose numbers exchange pieces of boxes
    fail("brings boxes of a tensor to `" + matrix->name + "`, which is read in another order",
         "copy element by element what warps multiply by themselves");
}

int64_t FragmentEmitter::own_elements(const Buffer& fragment) const {
  const auto shape = fragments_.find(fragment);
  if (shape == fragments_.end()) fail("has a fragment `" + fragment->name + "` of no product");
  return shape->second.m * shape->second.n / (lanes_x * lanes_y);
}

void FragmentEmitter::enter(ThreadAxis axis, const Var& var) {
  if (axis == ThreadAxis::thread_x) lane_x_ = var;
  if (axis == ThreadAxis::thread_y) lane_y_ = var;
  if (axis == ThreadAxis::thread_z) warp_ = var;
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
  const auto& [m, n, columns, is_of_group] = fragment->second;
  const auto* lanes = index.as<Ramp>();
  const Expr first = lanes ? lanes->base : index;
  const Substitution zeros = {{lane_x_, Expr(0)}, {lane_y_, Expr(0)}};
  const Expr own = simplify(substitute(first, zeros), ranges_);
  const bool are_neighbours =
      !lanes || (is_const_int(lanes->stride, 1) && columns % lanes->dtype.lanes == 0 &&
                 is_known_equal(floor_mod(own, Expr(int64_t{lanes->dtype.lanes})), Expr(0), ranges_));
  if (!are_neighbours || !is_known_equal(first - own, lane_y_ * Expr(n) + lane_x_ * Expr(columns), ranges_))
    fail("uses elements of the fragment `" + buffer->name + "` that are not the thread's: " + to_text(index),
         "bind rows modulo 8 to thread.y, and pairs of columns modulo 8, or eights modulo 32, to thread.x");
  const Expr i = floor_div(own, Expr(n)), j = floor_mod(own, Expr(n));
  // The first pairs of all eights are those of the first instructions, and so on.
  const Expr instruction = columns == 2 ? floor_div(j, Expr(mma_n))
                                        : floor_div(floor_mod(j, Expr(wide_columns)), Expr(2)) * Expr(n / wide_rows) +
                                              floor_div(j, Expr(wide_rows));
  const Expr tile = floor_div(i, Expr(mma_m)) * Expr(n / mma_n) + instruction;
  const Expr within = floor_div(floor_mod(i, Expr(mma_m)), Expr(lanes_y)) * Expr(2) + floor_mod(j, Expr(2));
  const std::string element = scalar(simplify(tile * Expr(4) + within, ranges_), true);
  if (!lanes) return element;
  return element + " + " +
         (lanes->dtype.lanes == 2 ? l : "(" + l + " / 2 * " + text(n / wide_columns) + " + " + l + " % 2)");
}

// Whole rows of banks stay as they are: the rest is the same at each step, and for each 32 rows.
std::string FragmentEmitter::element_at(const Load& operand, bool is_a, bool is_in_pairs) {
  const Place place = place_of(operand.indices);
  const int64_t of_lane = is_in_pairs ? 2 : 1, of_half = is_in_pairs ? 1 : lanes_x;
  const std::string first = "i % 2 * ", second = "i / 2 % 2 * ", stride = text(place.line());
  const std::string outside = "(k + " + (is_a ? second : first) + text(of_half) + ") * " + stride + " + i / 8 * 32 + ";
  const std::string within = scalar(place.base, true) + " + tw_lane % 4 * " + text(of_lane * place.line()) +
                             " + i / 4 % 2 * 16 + " + (is_a ? first : second) + text(lanes_y) + " + tw_lane / 4";
  const auto& swizzle = swizzles_.at(operand.buffer);
  return name_of(operand.buffer) + "[" + outside + (swizzle ? swizzle->of(within) : within) + "]";
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
  auto swizzle = swizzles_.at(operand.buffer);
  if (swizzle) swizzle->turned = 0;  // rows are read as they lie
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
  is_asynchronous(product_of(store)->intrinsic) ? multiply_by_group(store) : multiply_by_warp(store);
}

void FragmentEmitter::multiply_by_warp(const Store& store) {
  const Call& product = *product_of(store);
  const auto [m, n, k] = sizes_of(product);
  const auto &a = *product.arguments[1].as<Load>(), &b = *product.arguments[2].as<Load>();
  const std::string a_name = fresh("a"), b_name = fresh("b");
  const bool is_in_pairs = has_terms_in_pairs(product);
  // Of 16 bits: 16 × 8 squares are halves of those of an operand.
  const bool is_a_held = a.buffer->scope == Scope::fragment && !is_in_pairs;
  const std::string rows_of_a =
      is_a_held ? "(const u32*)" + name_of(a.buffer) + " + i * " + text(k / 4) + " + k / 4" : "&" + a_name + "[4 * i]";
  const auto for_each = [&](int64_t count, const std::string& statement) {
    line("#pragma unroll");
    line("for (int i = 0; i < " + text(count) + "; ++i) " + statement);
  };
  const auto load = [&](const Load& operand, const std::string& name, int64_t rows, bool is_a) {
    if (operand.buffer->scope == Scope::fragment) {
      for_each(rows / 4, name + "[i] = __float_as_uint(" + name_of(operand.buffer) + "[i / 4 * " + text(k / 2) +
                             " + k / 2 + i % 2 * 2 + i / 2 % 2]);");
    } else if (is_read_by_element(operand)) {
      for_each(rows / 4, name + "[i] = __float_as_uint(" + element_at(operand, is_a, is_in_pairs) + ");");
    } else {
      for_each(rows / 16, std::string("tw_ldmatrix") +
                              (place_of(operand.indices).is_transposed() ? "_transposed" : "") + "(&" + name +
                              "[4 * i], " + row_address(operand, is_a) + ");");
    }
    if (product.intrinsic == Intrinsic::mma_tf32) for_each(rows / 4, name + "[i] = tw_to_tf32(" + name + "[i]);");
  };
  line("{");
  ++depth_;
  line("u32 " + (is_a_held ? "" : a_name + "[" + text(m / 4) + "], ") + b_name + "[" + text(n / 4) + "];");
  line("#pragma unroll");
  line("for (int k = 0; k < " + text(k) + "; k += " + text(mma_k_bytes / a.buffer->dtype.bytes()) + ") {");
  ++depth_;
  if (!is_a_held) load(a, a_name, m, true);
  load(b, b_name, n, false);
  line("#pragma unroll");
  line("for (int i = 0; i < " + text(m / mma_m) + "; ++i) {");
  ++depth_;
  line("#pragma unroll");
  line("for (int j = 0; j < " + text(n / mma_n) + "; ++j)");
  line("  tw_" + to_text(product.intrinsic) + "(&" + name_of(store.buffer) + "[(i * " + text(n / mma_n) +
       " + j) * 4], " + rows_of_a + ", &" + b_name + "[2 * j]);");
  --depth_;
  line("}");
  --depth_;
  line("}");
  --depth_;
  line("}");
}

// Rows of warps side by side are rows of their group; what does not change with them is read by all.
FragmentEmitter::Matrix FragmentEmitter::matrix_of(const Load& operand, int64_t rows_of_warp) {
  const Place place = place_of(operand.indices);
  const int64_t bytes = operand.buffer->dtype.bytes(), line = place.line() * bytes;
  const auto base_of = [&](const Expr& warp_number) {
    return simplify(substitute(place.base, {{warp_, warp_number}}), ranges_);
  };
  const auto warps = warp_.is_defined() ? bounds_of(warp_, ranges_).high : std::nullopt;
  if (!warps || (*warps + 1) % warps_of_group != 0)
    fail("multiplies by groups of warps with " + text(warps.value_or(0) + 1) + " of them along z",
         "bind a multiple of 4 to thread.z");
  for (int64_t w = 0; w <= *warps; ++w) {
    const Expr first =
        base_of(Expr(w - w % warps_of_group)) + Expr(w % warps_of_group * rows_of_warp * place.row_stride);
    if (!is_known_equal(base_of(Expr(w)), first, ranges_))
      fail("multiplies rows of `" + operand.buffer->name + "` by warps that are no group: " + to_text(place.base),
           "bind each 16 rows of 64 to one of 4 warps side by side");
  }
  const Swizzle& swizzle = *swizzles_.at(operand.buffer);
  const std::string group = scalar(base_of(floor_div(warp_, Expr(warps_of_group)) * Expr(warps_of_group)), true);
  const int64_t width = std::min(line, bank_bytes), rows = int64_t{1} << swizzle.rows;
  const int64_t leading = swizzle.line ? rows * width : piece_bytes, mode = width == 128 ? 1 : width == 64 ? 2 : 3;
  const std::string index =
      swizzle.line ? "tw_columns<" + text(swizzle.line) + ", " + text(swizzle.rows) + ">(" + group + ")" : group;
  const std::string matrix = "tw_matrix(&" + name_of(operand.buffer) + "[" + index + "], " + text(leading) + ", " +
                             text(8 * width) + ", " + text(mode) + ")";
  const int64_t step = place.is_transposed() ? mma_k_bytes / bytes * width : mma_k_bytes;
  return {matrix, step / piece_bytes};
}

void FragmentEmitter::hold(const Buffer& sums) {
  line("tw_hold<" + text(own_elements(sums)) + ">(" + name_of(sums) + ");");
}

void FragmentEmitter::wait_for_products(int64_t left) {
  line("tw_wait_products<" + text(left) + ">();");
  if (left > 0) return;  // sums are not used yet
  for (const Buffer& sums : sums_of_groups_) hold(sums);
}

void FragmentEmitter::multiply_by_group(const Store& store) {
  const Call& product = *product_of(store);
  const auto [m, n, k] = sizes_of(product);
  const auto &a = *product.arguments[1].as<Load>(), &b = *product.arguments[2].as<Load>();
  const Matrix of_a = matrix_of(a, m), of_b = matrix_of(b, 0);
  const std::string a_name = fresh("a"), b_name = fresh("b");
  const auto is_transposed = [](const Load& operand) {
    return place_of(operand.indices).is_transposed() ? "true" : "false";
  };
  line("{");
  ++depth_;
  line("const u64 " + a_name + " = " + of_a.text + ", " + b_name + " = " + of_b.text + ";");
  hold(store.buffer);
  line("tw_begin_products();");
  line("#pragma unroll");
  line("for (int k = 0; k < " + text(k * a.buffer->dtype.bytes() / mma_k_bytes) + "; ++k)");
  // Bytes lie along k.
  const std::string turned =
      a.buffer->dtype.bytes() == 1 ? "" : std::string("<") + is_transposed(a) + ", " + is_transposed(b) + ">";
  line("  tw_" + to_text(product.intrinsic) + "_" + text(n) + turned + "(" + name_of(store.buffer) + ", " + a_name +
       " + k * " + text(of_a.step) + ", " + b_name + " + k * " + text(of_b.step) + ");");
  line("tw_commit_products();");
  --depth_;
  line("}");
}

}  // namespace tw::cuda
