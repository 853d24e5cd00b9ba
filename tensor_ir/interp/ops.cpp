// What each instruction does.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor_ir/interp/machine.h"
#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/type_rules.h"

namespace tw::interp {
namespace {

// Element kinds with their own fast arithmetic; all else goes through meaning::apply.
struct F64 {
  static double round(double value, DType) { return value; }
};
struct F32 {
  static double round(double value, DType) { return static_cast<float>(value); }
};
struct F16 {
  static double round(double value, DType dtype) { return meaning::round_to(dtype, value); }
};
struct I64 {
  static int64_t wrap(int64_t value, DType) { return value; }
};
struct Narrow {
  static int64_t wrap(int64_t value, DType dtype) { return meaning::wrap(dtype, value); }
};

template <class Compute>
const Instr* each_lane(const Instr* in, Frame& f, Compute compute) {
  const Slot *a = f.slots + in->a, *b = f.slots + in->b;
  Slot* d = f.slots + in->dst;
  for (int l = 0; l < in->lanes; ++l) d[l] = compute(a[l], b[l]);
  return in + 1;
}

template <BinaryOp op, class K>
const Instr* integer_binary(const Instr* in, Frame& f) {
  return each_lane(in, f, [dtype = in->dtype](Slot a, Slot b) {
    const auto x = static_cast<uint64_t>(a.i), y = static_cast<uint64_t>(b.i);
    const uint64_t result = op == BinaryOp::add ? x + y : op == BinaryOp::sub ? x - y : x * y;
    return of(K::wrap(static_cast<int64_t>(result), dtype));
  });
}

template <BinaryOp op>
const Instr* signed_compare(const Instr* in, Frame& f) {
  return each_lane(in, f, [](Slot a, Slot b) {
    if constexpr (op == BinaryOp::lt) return of(int64_t{a.i < b.i});
    if constexpr (op == BinaryOp::le) return of(int64_t{a.i <= b.i});
    if constexpr (op == BinaryOp::eq) return of(int64_t{a.i == b.i});
    if constexpr (op == BinaryOp::ne) return of(int64_t{a.i != b.i});
    if constexpr (op == BinaryOp::logical_and) return of(int64_t{a.i && b.i});
    if constexpr (op == BinaryOp::logical_or) return of(int64_t{a.i || b.i});
    if constexpr (op == BinaryOp::min) return a.i < b.i ? a : b;
    if constexpr (op == BinaryOp::max) return a.i < b.i ? b : a;
  });
}

template <BinaryOp op, class K>
const Instr* float_binary(const Instr* in, Frame& f) {
  const DType dtype = in->from;
  return each_lane(in, f, [dtype](Slot a, Slot b) {
    (void)dtype;
    if constexpr (op == BinaryOp::add) return of(K::round(a.f + b.f, dtype));
    if constexpr (op == BinaryOp::sub) return of(K::round(a.f - b.f, dtype));
    if constexpr (op == BinaryOp::mul) return of(K::round(a.f * b.f, dtype));
    if constexpr (op == BinaryOp::div) return of(K::round(a.f / b.f, dtype));
    if constexpr (op == BinaryOp::min) return of(std::isnan(a.f) ? b.f : b.f < a.f ? b.f : a.f);
    if constexpr (op == BinaryOp::max) return of(std::isnan(a.f) ? b.f : a.f < b.f ? b.f : a.f);
  });
}

template <BinaryOp op>
const Instr* float_compare(const Instr* in, Frame& f) {
  return each_lane(in, f, [](Slot a, Slot b) { return of(int64_t{meaning::compare(op, a.f, b.f)}); });
}

const Instr* any_integer_binary(const Instr* in, Frame& f) {
  return each_lane(in, f, [in](Slot a, Slot b) {
    return of(meaning::apply(static_cast<BinaryOp>(in->target), in->from, a.i, b.i));
  });
}

const Instr* any_float_binary(const Instr* in, Frame& f) {
  return each_lane(in, f, [in](Slot a, Slot b) {
    return of(meaning::apply(static_cast<BinaryOp>(in->target), in->from, a.f, b.f));
  });
}

template <class K>
Handler float_handler(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return float_binary<BinaryOp::add, K>;
    case BinaryOp::sub:
      return float_binary<BinaryOp::sub, K>;
    case BinaryOp::mul:
      return float_binary<BinaryOp::mul, K>;
    case BinaryOp::div:
      return float_binary<BinaryOp::div, K>;
    case BinaryOp::min:
      return float_binary<BinaryOp::min, K>;
    case BinaryOp::max:
      return float_binary<BinaryOp::max, K>;
    default:
      return any_float_binary;
  }
}

const Instr* negate_float(const Instr* in, Frame& f) {
  for (int l = 0; l < in->lanes; ++l) f.slots[in->dst + l].f = -f.slots[in->a + l].f;
  return in + 1;
}

const Instr* any_integer_unary(const Instr* in, Frame& f) {
  for (int l = 0; l < in->lanes; ++l) {
    f.slots[in->dst + l].i = meaning::apply(static_cast<UnaryOp>(in->target), in->from, f.slots[in->a + l].i);
  }
  return in + 1;
}

// Calls: a, b, c are the operands' slots; what is not there is slot a again.
const Instr* math_call(const Instr* in, Frame& f) {
  for (int l = 0; l < in->lanes; ++l) {
    const double arguments[] = {f.slots[in->a + l].f, f.slots[in->b + l].f, f.slots[in->c + l].f};
    f.slots[in->dst + l].f = meaning::apply(static_cast<Intrinsic>(in->target), in->from, arguments);
  }
  return in + 1;
}

const Instr* integer_call(const Instr* in, Frame& f) {
  for (int l = 0; l < in->lanes; ++l) {
    const int64_t arguments[] = {f.slots[in->a + l].i, f.slots[in->b + l].i, f.slots[in->c + l].i};
    f.slots[in->dst + l].i = meaning::apply(static_cast<Intrinsic>(in->target), in->from, arguments);
  }
  return in + 1;
}

const Instr* test_call(const Instr* in, Frame& f) {
  for (int l = 0; l < in->lanes; ++l) {
    f.slots[in->dst + l].i = meaning::test(static_cast<Intrinsic>(in->target), f.slots[in->a + l].f);
  }
  return in + 1;
}

template <bool is_single>
const Instr* fma_call(const Instr* in, Frame& f) {
  for (int l = 0; l < in->lanes; ++l) {
    const double a = f.slots[in->a + l].f, b = f.slots[in->b + l].f, c = f.slots[in->c + l].f;
    if constexpr (is_single) {
      f.slots[in->dst + l].f = __builtin_fmaf(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
    } else {
      f.slots[in->dst + l].f = __builtin_fma(a, b, c);
    }
  }
  return in + 1;
}

template <bool from_float, bool to_float>
const Instr* cast_element(const Instr* in, Frame& f) {
  for (int l = 0; l < in->lanes; ++l) {
    const Slot x = f.slots[in->a + l];
    Slot& d = f.slots[in->dst + l];
    if constexpr (from_float && to_float)
      d.f = meaning::round_to(in->dtype, x.f);
    else if constexpr (from_float)
      d.i = meaning::float_to_int(in->dtype, x.f);
    else if constexpr (to_float)
      d.f = meaning::int_to_float(in->from, in->dtype, x.i);
    else
      d.i = meaning::wrap(in->dtype, x.i);
  }
  return in + 1;
}

const Instr* reduce_lanes(const Instr* in, Frame& f) {
  Slot result = f.slots[in->a];
  const auto op = static_cast<BinaryOp>(in->target);
  for (int l = 1; l < in->lanes; ++l) {
    const Slot x = f.slots[in->a + l];
    if (in->from.is_float())
      result.f = meaning::apply(op, in->from, result.f, x.f);
    else
      result.i = meaning::apply(op, in->from, result.i, x.i);
  }
  f.slots[in->dst] = result;
  return in + 1;
}

// ---------------------------------------------------------------------------------------------------------------
// Lanes and control

const Instr* select_lanes(const Instr* in, Frame& f) {  // target: the step of the condition
  for (int l = 0; l < in->lanes; ++l) {
    f.slots[in->dst + l] = f.slots[in->a + l * in->target].i ? f.slots[in->b + l] : f.slots[in->c + l];
  }
  return in + 1;
}

const Instr* make_ramp(const Instr* in, Frame& f) {  // target: lanes of base and stride
  for (int l = 0; l < in->lanes; ++l) {
    const int part = l % in->target;
    const auto base = static_cast<uint64_t>(f.slots[in->a + part].i);
    const auto offset = static_cast<uint64_t>(l / in->target) * static_cast<uint64_t>(f.slots[in->b + part].i);
    f.slots[in->dst + l].i = meaning::wrap(in->dtype, static_cast<int64_t>(base + offset));
  }
  return in + 1;
}

const Instr* broadcast_lanes(const Instr* in, Frame& f) {  // target: lanes of the value
  for (int l = 0; l < in->lanes; ++l) f.slots[in->dst + l] = f.slots[in->a + l % in->target];
  return in + 1;
}

const Instr* copy_lanes(const Instr* in, Frame& f) {
  std::memmove(f.slots + in->dst, f.slots + in->a, sizeof(Slot) * static_cast<size_t>(in->lanes));
  return in + 1;
}

const Instr* reinterpret_lanes(const Instr* in, Frame& f) {  // lanes: of the operand; target: of the result
  std::vector<uint8_t> bytes(static_cast<size_t>(in->lanes) * in->from.bytes());
  for (int l = 0; l < in->lanes; ++l) {
    const Slot x = f.slots[in->a + l];
    const uint64_t bits = in->from.is_float() ? meaning::bits_of_float(in->from, x.f) : static_cast<uint64_t>(x.i);
    std::memcpy(&bytes[static_cast<size_t>(l) * in->from.bytes()], &bits, in->from.bytes());
  }
  for (int l = 0; l < in->target; ++l) {
    uint64_t bits = 0;
    std::memcpy(&bits, &bytes[static_cast<size_t>(l) * in->dtype.bytes()], in->dtype.bytes());
    if (in->dtype.is_float())
      f.slots[in->dst + l].f = meaning::float_of_bits(in->dtype, bits);
    else
      f.slots[in->dst + l].i = meaning::wrap(in->dtype, static_cast<int64_t>(bits));
  }
  return in + 1;
}

template <bool is_float>
const Instr* dot_call(const Instr* in, Frame& f) {
  const auto intrinsic = static_cast<Intrinsic>(in->target);
  for (int l = 0; l < in->lanes; ++l) {
    const auto a = static_cast<uint32_t>(f.slots[in->b + l].i), b = static_cast<uint32_t>(f.slots[in->c + l].i);
    Slot& result = f.slots[in->dst + l];
    if constexpr (is_float)
      result.f = meaning::dot(intrinsic, f.slots[in->a + l].f, a, b);
    else
      result.i = meaning::dot(intrinsic, f.slots[in->a + l].i, a, b);
  }
  return in + 1;
}

template <bool is_float>
const Instr* tile_call(const Instr* in,
                       Frame& f) {  // lanes: k; target: the intrinsic; dtype: with m · n lanes; from.lanes: n
  const auto intrinsic = static_cast<Intrinsic>(in->target);
  const int k = in->lanes, n = in->from.lanes;
  // Words of b lie row by row: those of a column are apart in a tile, and together in a matrix.
  const bool is_matrix = kind_of(intrinsic) == IntrinsicKind::matrix;
  std::vector<uint32_t> a(static_cast<size_t>(k)), b(a.size());
  for (int i = 0; i < in->dtype.lanes; ++i) {
    for (int l = 0; l < k; ++l) {
      a[l] = static_cast<uint32_t>(f.slots[in->b + i / n * k + l].i);
      b[l] = static_cast<uint32_t>(f.slots[in->c + (is_matrix ? i % n * k + l : l * n + i % n)].i);
    }
    Slot& result = f.slots[in->dst + i];
    if constexpr (is_float)
      result.f = meaning::tile_dot(intrinsic, f.slots[in->a + i].f, k, a.data(), b.data());
    else
      result.i = meaning::tile_dot(intrinsic, f.slots[in->a + i].i, k, a.data(), b.data());
  }
  return in + 1;
}

const Instr* tile_places(const Instr* in, Frame& f) {  // a: base, b: row stride; lanes: columns; target: their stride
  for (int i = 0; i < in->dtype.lanes; ++i) {
    f.slots[in->dst + i].i = f.slots[in->a].i + i / in->lanes * f.slots[in->b].i + int64_t{i % in->lanes} * in->target;
  }
  return in + 1;
}

const Instr* tile_within(const Instr* in, Frame& f) {  // a: rows there, b: columns there; lanes: columns
  for (int i = 0; i < in->dtype.lanes; ++i) {
    const bool is_there = i / in->lanes < f.slots[in->a].i && i % in->lanes < f.slots[in->b].i;
    f.slots[in->dst + i].i = is_there;
  }
  return in + 1;
}

const Instr* jump(const Instr* in, Frame& f) {
  return f.code + in->target;
}
const Instr* jump_if_false(const Instr* in, Frame& f) {
  return f.slots[in->a].i ? in + 1 : f.code + in->target;
}
const Instr* jump_unless_zero(const Instr* in, Frame& f) {
  return f.slots[in->a].i == 0 ? in + 1 : f.code + in->target;
}
const Instr* jump_unless_less(const Instr* in, Frame& f) {
  return f.slots[in->a].i < f.slots[in->b].i ? in + 1 : f.code + in->target;
}
const Instr* add_one(const Instr* in, Frame& f) {
  ++f.slots[in->a].i;
  return f.code + in->target;
}

const Instr* check_iteration(const Instr* in, Frame& f) {  // a: the variable, b: its extent, target: its name
  const int64_t value = f.slots[in->a].i, extent = f.slots[in->b].i;
  if (value < 0 || value >= extent) {
    trap("block iteration `" + f.machine->program.checks[in->target] + "` is " + std::to_string(value) +
             ", outside its extent " + std::to_string(extent),
         "guard the block with a predicate");
  }
  return in + 1;
}

const Instr* parallel_begin(const Instr* in, Frame& f) {  // b: the extent
  ParallelState state;
  state.order = f.machine->shuffled(f.slots[in->b].i);
  state.outer_tag = f.tag;
  state.instance = f.machine->new_instance();
  f.parallel.push_back(std::move(state));
  return in + 1;
}

const Instr* parallel_next(const Instr* in, Frame& f) {  // a: the variable; target: behind the loop
  ParallelState& state = f.parallel.back();
  if (state.position == state.order.size()) {
    f.tag = state.outer_tag;
    f.parallel.pop_back();
    if (f.tag == 0) f.machine->back_to_serial();
    return f.code + in->target;
  }
  f.slots[in->a].i = state.order[state.position++];
  if (f.machine->options.check_races) f.tag = f.machine->new_tag(state.outer_tag, state.instance);
  return in + 1;
}

const Instr* thread_loop(const Instr* in, Frame& f) {  // a: the variable, b: its extent, c: the axis
  f.slots[in->a].i = f.axes[in->c];
  return f.slots[in->a].i < f.slots[in->b].i ? in + 1 : f.code + in->target;
}

const Instr* launch(const Instr* in, Frame& f) {
  const LaunchPlan& plan = f.machine->program.launches[in->target];
  f.machine->launch(f, plan, in + 1);
  return f.code + plan.end;
}

const Instr* barrier(const Instr* in, Frame& f) {
  if (!f.block_storage) trap("barrier() outside of thread-bound loops", "bind the loops around it to threads");
  f.resume = in + 1;
  f.waits_for_warp = false;
  return nullptr;
}

const Instr* warp_barrier(const Instr* in, Frame& f) {
  const Instr* next = barrier(in, f);
  f.waits_for_warp = true;
  return next;
}

const Instr* begin_copies(const Instr* in, Frame& f) {
  f.is_copying = true;
  return in + 1;
}

const Instr* commit_copies(const Instr* in, Frame& f) {
  f.is_copying = false;
  f.copies.push_back(std::move(f.group));
  f.group.clear();
  return in + 1;
}

const Instr* wait_copies(const Instr* in, Frame& f) {  // a: so many groups may be left
  for (; static_cast<int64_t>(f.copies.size()) > f.slots[in->a].i; f.copies.pop_front())
    for (const PendingStore& store : f.copies.front()) f.machine->land(f, store);
  return in + 1;
}

const Instr* end_product(const Instr* in, Frame&) {
  return in + 1;
}

void make_products(Frame& f, int64_t left) {
  const auto constants = f.slots - f.memory.data();
  const auto exchange = [&](PendingProduct& product) {
    std::swap(f.memory, product.memory);
    f.slots = f.memory.data() + constants;
  };
  for (; static_cast<int64_t>(f.products.size()) > left; f.products.pop_front()) {
    PendingProduct& product = f.products.front();
    exchange(product);
    for (const Instr* in = product.begin; in->run != end_product;) in = in->run(in, f);
    exchange(product);
  }
}

const Instr* begin_product(const Instr* in, Frame& f) {  // target: behind the product
  if (f.machine->random() % 2 == 0) {                    // late, or at once
    f.products.push_back({in + 1, f.memory});
    return f.code + in->target;
  }
  make_products(f, 0);  // in order
  return in + 1;
}

const Instr* wait_products(const Instr* in, Frame& f) {  // a: so many may be left
  make_products(f, f.slots[in->a].i);
  return in + 1;
}

const Instr* allocate(const Instr* in, Frame& f) {
  f.machine->allocate(f, f.machine->program.allocations[in->target]);
  return in + 1;
}

const Instr* end(const Instr*, Frame& f) {
  f.resume = nullptr;
  return nullptr;
}

}  // namespace

Handler unary_handler(UnaryOp, DType dtype) {
  return dtype.is_float() ? negate_float : any_integer_unary;
}

Handler binary_handler(BinaryOp op, DType dtype) {
  if (dtype.is_float()) {
    switch (op) {
      case BinaryOp::eq:
        return float_compare<BinaryOp::eq>;
      case BinaryOp::ne:
        return float_compare<BinaryOp::ne>;
      case BinaryOp::lt:
        return float_compare<BinaryOp::lt>;
      case BinaryOp::le:
        return float_compare<BinaryOp::le>;
      default:
        break;
    }
    if (dtype.bits == 64) return float_handler<F64>(op);
    return dtype.bits == 32 ? float_handler<F32>(op) : float_handler<F16>(op);
  }
  const bool is_wide = dtype.bits == 64 && !dtype.is_bool();
  const bool is_signed_order = dtype.element() != u64;  // narrower unsigned values are non-negative in a slot
  switch (op) {
    case BinaryOp::add:
      return is_wide ? integer_binary<BinaryOp::add, I64> : integer_binary<BinaryOp::add, Narrow>;
    case BinaryOp::sub:
      return is_wide ? integer_binary<BinaryOp::sub, I64> : integer_binary<BinaryOp::sub, Narrow>;
    case BinaryOp::mul:
      return is_wide ? integer_binary<BinaryOp::mul, I64> : integer_binary<BinaryOp::mul, Narrow>;
    case BinaryOp::eq:
      return signed_compare<BinaryOp::eq>;
    case BinaryOp::ne:
      return signed_compare<BinaryOp::ne>;
    case BinaryOp::logical_and:
      return signed_compare<BinaryOp::logical_and>;
    case BinaryOp::logical_or:
      return signed_compare<BinaryOp::logical_or>;
    case BinaryOp::lt:
      return is_signed_order ? signed_compare<BinaryOp::lt> : any_integer_binary;
    case BinaryOp::le:
      return is_signed_order ? signed_compare<BinaryOp::le> : any_integer_binary;
    case BinaryOp::min:
      return is_signed_order ? signed_compare<BinaryOp::min> : any_integer_binary;
    case BinaryOp::max:
      return is_signed_order ? signed_compare<BinaryOp::max> : any_integer_binary;
    default:
      return any_integer_binary;
  }
}

Handler call_handler(Intrinsic intrinsic, DType operands, DType result) {
  if (intrinsic == Intrinsic::tile_at) return tile_places;
  if (intrinsic == Intrinsic::tile_within) return tile_within;
  if (kind_of(intrinsic) == IntrinsicKind::fragment) return fragment_handler(intrinsic, result);
  if (kind_of(intrinsic) == IntrinsicKind::decode) return decode_handler();
  if (kind_of(intrinsic) == IntrinsicKind::encode) return encode_handler();
  if (kind_of(intrinsic) == IntrinsicKind::tile || kind_of(intrinsic) == IntrinsicKind::matrix)
    return operands.is_float() ? tile_call<true> : tile_call<false>;
  if (kind_of(intrinsic) == IntrinsicKind::dot) return operands.is_float() ? dot_call<true> : dot_call<false>;
  if (!operands.is_float()) return integer_call;
  if (result.is_bool()) return test_call;
  if (intrinsic == Intrinsic::fma && operands.bits == 32) return fma_call<true>;
  if (intrinsic == Intrinsic::fma && operands.bits == 64) return fma_call<false>;
  return math_call;
}

Handler cast_handler(DType from, DType to) {
  if (from.is_float()) return to.is_float() ? cast_element<true, true> : cast_element<true, false>;
  return to.is_float() ? cast_element<false, true> : cast_element<false, false>;
}

Handler reduce_handler() {
  return reduce_lanes;
}

Handler control_handler(Control control) {
  switch (control) {
    case Control::select:
      return select_lanes;
    case Control::ramp:
      return make_ramp;
    case Control::broadcast:
      return broadcast_lanes;
    case Control::copy:
      return copy_lanes;
    case Control::reinterpret:
      return reinterpret_lanes;
    case Control::jump:
      return jump;
    case Control::jump_if_false:
      return jump_if_false;
    case Control::jump_unless_zero:
      return jump_unless_zero;
    case Control::jump_unless_less:
      return jump_unless_less;
    case Control::add_one:
      return add_one;
    case Control::check_iteration:
      return check_iteration;
    case Control::parallel_begin:
      return parallel_begin;
    case Control::parallel_next:
      return parallel_next;
    case Control::thread_loop:
      return thread_loop;
    case Control::launch:
      return launch;
    case Control::barrier:
      return barrier;
    case Control::warp_barrier:
      return warp_barrier;
    case Control::begin_copies:
      return begin_copies;
    case Control::commit_copies:
      return commit_copies;
    case Control::wait_copies:
      return wait_copies;
    case Control::begin_product:
      return begin_product;
    case Control::end_product:
      return end_product;
    case Control::wait_products:
      return wait_products;
    case Control::allocate:
      return allocate;
    case Control::end:
      return end;
  }
  internal_error("interpret: a control instruction");
}

}  // namespace tw::interp
