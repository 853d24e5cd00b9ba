// Scaled dot-product attention: matmul(softmax(matmul(q, kᵀ) · scale + mask), v), with the repetition of k's and v's
// heads where several heads of q share one.
//
// Scales stand on the scores, on q or on kᵀ, often as a root of the whole on each.  kᵀ is any value: what is emitted is
// its transpose, and simplify joins that with the transpose that made it.
#include <numeric>

#include "relay_ir/passes/recognise.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

bool is_last_axis(const Node& softmax) {
  // The rank is not known here; build checks what is counted from the front.
  return softmax.attributes.get_int("axis") == -1 || softmax.attributes.get_int("axis") >= 2;
}

// x · multiplied / divided, either perhaps absent.
struct Scaling {
  Pattern multiplied = number(), divided = number();
  Pattern of(const Pattern& x) const { return either({x * multiplied, x / divided, x}); }
  double factor(const Site& s) const {
    return s.has(multiplied) ? s.number(multiplied) : s.has(divided) ? 1 / s.number(divided) : 1.0;
  }
};

// k or v for each head of q: repeated along a new axis behind the shared heads, or as it is.
struct Repetition {
  Pattern shared = any(), plain = any();
  Pattern expanded = op("broadcast_to", {shared});
  Pattern repeated = op("reshape", {expanded});
  Pattern value = either({repeated, plain});

  // […, shared heads, 1, keys, size] → […, shared heads, repetitions, keys, size] → […, heads, keys, size]
  bool fits(const Site& s) const {
    if (!s.has(shared)) return true;
    const std::vector<Expr>&from = s.type(shared).shape, &wide = s.type(expanded).shape;
    if (wide.size() < 4) return false;
    const size_t axis = wide.size() - 3;
    std::vector<Expr> narrow = wide, joined = wide;
    narrow[axis] = 1;
    joined[axis - 1] = joined[axis - 1] * joined[axis];
    joined.erase(joined.end() - 3);
    return is_same_shape(from, narrow) && is_same_shape(s.type(repeated).shape, joined);
  }
  ValueId emit(Site& s) const {
    if (!s.has(shared)) return s[plain];
    std::vector<Expr> shape = s.type(shared).shape;
    shape.erase(shape.end() - 3);
    return s.add("reshape", {s[shared]}, attributes_of({{"shape", shape}}));
  }
};

// Of a transpose of two axes or more.
std::vector<int64_t> swapping_last_two(size_t rank) {
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return perm;
}

bool swaps_last_two(const Node& transpose) {
  std::vector<int64_t> perm = transpose.attributes.get_ints("perm");
  const auto rank = static_cast<int64_t>(perm.size());
  for (int64_t& axis : perm) axis = (axis + rank) % rank;
  return rank >= 2 && perm == swapping_last_two(perm.size());
}

bool is_plain_product(const Node& matmul) {
  return matmul.attributes.get_int("transpose_a") == 0 && matmul.attributes.get_int("transpose_b") == 0;
}
bool is_transposed_product(const Node& matmul) {
  return matmul.attributes.get_int("transpose_a") == 0 && matmul.attributes.get_int("transpose_b") != 0;
}

}  // namespace

std::vector<Recognition> attention_recognitions() {
  const Pattern q = any(), mask = any(), condition = any(), lowest = number();
  const Scaling of_q, of_k, of_scores;
  const Repetition k, v;
  // kᵀ: repeated heads that are transposed then; anything.  k: its rows are keys.
  const Pattern transposed_k = any();
  const Pattern k_rows = of_k.of(k.value);
  const Pattern swapped_rows = op("transpose", {k.repeated}, swaps_last_two);
  const Pattern k_columns = of_k.of(either({swapped_rows, transposed_k}));
  const Pattern product = either({op("matmul", {of_q.of(q), k_columns}, is_plain_product),
                                  op("matmul", {of_q.of(q), k_rows}, is_transposed_product)});
  const Pattern scores = of_scores.of(product);
  const Pattern kept = op("where", {condition, scores, lowest}), left_out = op("where", {condition, lowest, scores});
  const Pattern masked = either({scores + mask, kept, left_out, scores});
  const Pattern softmax = op("softmax", {maybe("cast", masked)}, is_last_axis);
  // Rows that see nothing are zero instead of NaN.
  const Pattern guarded = op("where", {op("is_nan", {softmax}), number(0), softmax});
  const Pattern weights = maybe("cast", either({guarded, softmax}));

  const auto build = [=](Site& s) -> ValueId {
    const int rank = s.type(q).rank();
    const TensorType& type = s.type(q);
    const auto axis = s.node(softmax).attributes.get_int("axis");
    if (rank < 3 || (axis != -1 && axis != rank - 1)) return no_value;
    // A mask that enlarges the scores is none.
    if (!is_same_shape(s.type(masked).shape, s.type(product).shape)) return no_value;
    if (!k.fits(s) || !v.fits(s) || s.result_type().dtype != type.dtype) return no_value;
    // Batch dimensions that broadcast are left to matmul.
    const bool has_rows = s.has(k_rows);
    const Pattern& key = has_rows ? k.value : s.has(swapped_rows) ? k.repeated : transposed_k;
    for (const Pattern& operand : {key, v.value}) {
      if (s.type(operand).rank() != rank || s.type(operand).dtype != type.dtype) return no_value;
      for (int d = 0; d + 2 < rank; ++d) {
        if (!is_known_equal(s.type(operand).shape[d], type.shape[d])) return no_value;
      }
    }
    if (s.has(k.shared) != s.has(v.shared)) return no_value;
    if (s.has(k.shared) && !is_known_equal(s.type(k.shared).shape[rank - 3], s.type(v.shared).shape[rank - 3]))
      return no_value;
    const bool has_mask = s.has(mask) || s.has(condition);
    if (s.has(mask) && !(s.type(mask).rank() <= rank && s.type(mask).dtype.is_float())) return no_value;
    if (s.has(condition) && s.type(condition).rank() > rank) return no_value;

    NodeAttributes attributes = attributes_of({{"scale", of_q.factor(s) * of_k.factor(s) * of_scores.factor(s)}});
    std::vector<ValueId> inputs{s[q]};
    const auto swapped = attributes_of({{"perm", swapping_last_two(rank)}});
    inputs.push_back(has_rows || s.has(swapped_rows) ? k.emit(s) : s.add("transpose", {s[transposed_k]}, swapped));
    inputs.push_back(v.emit(s));
    if (has_mask) {
      if (s.has(condition)) attributes.set("masked", s.number(lowest));
      inputs.push_back(s.has(mask) ? s[mask] : s.has(left_out) ? s.add("logical_not", {s[condition]}) : s[condition]);
    }
    if (s.has(guarded)) attributes.set("zero_if_masked", int64_t{1});
    return s.result("attention", inputs, attributes);
  };
  return {{op("matmul", {weights, v.value}, is_plain_product), build}};
}

}  // namespace tw::relay
