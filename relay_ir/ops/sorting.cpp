#include "relay_ir/ops/sorting.h"

#include <bit>

#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {

Expr comes_before(const Expr& a, const Expr& b) {
  if (!a.dtype().is_float()) return a < b;
  return a < b || (call(Intrinsic::is_nan, {b}) && !call(Intrinsic::is_nan, {a}));
}

Stmt merge_sort(const Buffer& order, const Expr& count,
                const std::function<Expr(const Expr& a, const Expr& b)>& is_before) {
  constexpr int64_t most = int64_t{1} << 40;  // elements
  const int64_t largest = std::min(bounds_of(count).high.value_or(most), most);
  const int passes = largest <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(largest - 1));
  const Buffer state = scratch("merge", i64, {Expr(4)});
  enum { left, right, width, source };  // of the runs that are merged; which row is read
  const auto get = [&](int64_t which) { return load(state, {Expr(which)}); };
  const auto set = [&](int64_t which, const Expr& value) { return store(state, {Expr(which)}, value); };
  const Expr last = simplify(count - 1);
  const auto at = [&](const Expr& i) { return load(order, {get(source), min(i, last)}); };
  const Stmt begin = loops_over({Expr(2), count}, [&](const te::Indices& i) { return store(order, i, i[1]); });
  const Stmt merge = loops_over({count}, [&](const te::Indices& i) {
    const Expr within = binary(BinaryOp::bit_and, i[0], get(width) * 2 - 1), run = i[0] - within;
    const Expr left_end = min(run + get(width), count), right_end = min(run + get(width) * 2, count);
    const Expr is_right = get(right) < right_end && (get(left) >= left_end || is_before(at(get(right)), at(get(left))));
    const Stmt take_right =
        seq({store(order, {Expr(1) - get(source), i[0]}, at(get(right))), set(right, get(right) + 1)});
    const Stmt take_left = seq({store(order, {Expr(1) - get(source), i[0]}, at(get(left))), set(left, get(left) + 1)});
    return seq({make_stmt<If>(equal(within, 0), seq({set(left, run), set(right, left_end)})),
                make_stmt<If>(is_right, take_right, take_left)});
  });
  const Stmt pass = loops_over({Expr(passes)}, [&](const te::Indices&) {
    return make_stmt<If>(get(width) < count,
                         seq({merge, set(width, get(width) * 2), set(source, Expr(1) - get(source))}));
  });
  const Stmt finish = make_stmt<If>(equal(get(source), 1), loops_over({count}, [&](const te::Indices& i) {
                                      return store(order, {Expr(0), i[0]}, load(order, {Expr(1), i[0]}));
                                    }));
  return make_stmt<Allocate>(state,
                             seq({begin, set(width, 1), set(source, 0), set(left, 0), set(right, 0), pass, finish}));
}

}  // namespace tw::relay
