#include "tests/unit/targets/cases.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/type_rules.h"
#include "tests/unit/sample_funcs.h"

namespace tw::test {
namespace {

KernelCase make_case(const std::string& name, const Func& func, uint64_t seed, double tolerance,
                     const std::map<std::string, int64_t>& parameters = {}) {
  KernelCase result{name, func, {}, {}, tolerance, parameters};
  std::vector<NDArray> buffers = random_buffers(func, seed, parameters);
  const size_t inputs = buffers.size() - static_cast<size_t>(func.output_count);
  result.inputs.assign(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(inputs));
  InterpretOptions options;
  options.check_races = false;  // the tests of schedules look for them
  options.parameters = parameters;
  interpret(func, buffers, options);
  result.expected.assign(buffers.begin() + static_cast<std::ptrdiff_t>(inputs), buffers.end());
  return result;
}

const DType all_types[] = {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean};

// One block: the innermost loop split and vectorized, the tail by a guard.
Func vectorized(const Func& f, int64_t width) {
  Schedule schedule(f);
  const BlockRef block = schedule.blocks()[0];
  std::vector<LoopRef> loops = schedule.loops(block);
  if (loops.size() > 1) schedule.parallel(loops[0]);
  schedule.vectorize(schedule.split(loops.back(), {std::nullopt, width})[1]);
  return schedule.func();
}

class RandomExpression {
 public:
  RandomExpression(std::mt19937_64& random, std::vector<Expr> leaves) : random_(random), leaves_(std::move(leaves)) {}

  Expr value(DType dtype, int depth) {
    if (depth == 0) return leaf(dtype);
    auto sub = [&] { return value(dtype, depth - 1); };
    if (dtype.is_bool()) {
      switch (pick(5)) {
        case 0:
          return sub() && sub();
        case 1:
          return sub() || sub();
        case 2:
          return !sub();
        case 3:
          return equal(sub(), sub());
        default:
          return leaf(dtype);
      }
    }
    switch (pick(dtype.is_float() ? 12 : 14)) {
      case 0:
      case 1:
        return sub() + sub();
      case 2:
        return sub() - sub();
      case 3:
        return sub() * sub();
      case 4:
        return min(sub(), sub());
      case 5:
        return max(sub(), sub());
      case 6:
        return select(condition(dtype, depth), sub(), sub());
      case 7:
        return call(Intrinsic::abs, {sub()});
      case 8:
        return call(Intrinsic::minimum, {sub(), sub()});
      case 9:
        return call(Intrinsic::sign, {sub()});
      case 10:
        if (dtype.is_float()) return sub() / (call(Intrinsic::abs, {sub()}) + const_of(dtype, 1));
        return division(sub(), max(call(Intrinsic::abs, {sub()}), const_of(dtype, 1)));
      case 11: {
        if (!dtype.is_float()) return division(sub(), int_imm(dtype, 1 + static_cast<int64_t>(pick(7))));
        static const Intrinsic rounding[] = {Intrinsic::floor, Intrinsic::ceil, Intrinsic::trunc,
                                             Intrinsic::round_even};
        return call(rounding[pick(4)], {sub() * const_of(dtype, 3)});
      }
      case 12: {
        static const BinaryOp bits[] = {BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor};
        return binary(bits[pick(3)], sub(), sub());
      }
      default:
        return binary(pick(2) ? BinaryOp::shift_left : BinaryOp::shift_right, sub(),
                      int_imm(dtype, static_cast<int64_t>(pick(dtype.bits))));
    }
  }

 private:
  size_t pick(size_t n) { return random_() % n; }
  Expr leaf(DType dtype) {
    if (pick(5) == 0) return const_of(dtype, static_cast<double>(pick(3)));
    return leaves_[pick(leaves_.size())];
  }
  Expr division(Expr a, Expr b) {
    static const BinaryOp ops[] = {BinaryOp::div, BinaryOp::mod, BinaryOp::floor_div, BinaryOp::floor_mod};
    return binary(ops[pick(4)], std::move(a), std::move(b));
  }
  Expr condition(DType dtype, int depth) {
    static const BinaryOp ops[] = {BinaryOp::lt, BinaryOp::le, BinaryOp::eq, BinaryOp::ne};
    return binary(ops[pick(4)], value(dtype, depth - 1), value(dtype, depth - 1));
  }

  std::mt19937_64& random_;
  std::vector<Expr> leaves_;
};

// Rounding differs where the machine fuses a multiplication and an addition.
double tolerance_of(DType dtype) {
  if (!dtype.is_float()) return 0;
  return dtype.element() == f64 ? 1e-12 : dtype.element() == f32 ? 1e-5 : dtype.element() == f16 ? 4e-3 : 3e-2;
}

}  // namespace

std::vector<KernelCase> sample_cases(const Target& target, bool is_scheduled) {
  std::vector<KernelCase> cases;
  for (const SampleFunc& sample : sample_funcs()) {
    const Func func = is_scheduled ? target.default_schedule(sample.func, target).func() : sample.func;
    cases.push_back(make_case(sample.name + (is_scheduled ? "_scheduled" : "_naive"), func, 7, 1e-4));
  }
  return cases;
}

std::vector<KernelCase> elementwise_cases(const Target& target) {
  std::vector<KernelCase> cases;
  std::mt19937_64 random(11);
  for (DType dtype : all_types) {
    for (int n = 0; n < 6; ++n) {
      const std::vector<Expr> shape = {Expr(int64_t(3 + random() % 5)), Expr(int64_t(5 + random() % 30))};
      const auto a = te::placeholder("A", shape, dtype), b = te::placeholder("B", shape, dtype);
      const auto row = te::placeholder("R", {shape[1]}, dtype);
      const uint64_t seed = random();
      const auto c = te::compute("C", shape, {a, b, row}, [&](const te::Indices& s) {
        std::mt19937_64 same(seed);  // `compute` asks twice
        return RandomExpression(same, {a(s), b(s), row({s[1]})}).value(dtype, 3);
      });
      const Func f = te::make_func("f", {a, b, row}, {c});
      const int64_t widths[] = {target.lanes(f32), 2 * target.lanes(dtype), 5};
      cases.push_back(make_case("elementwise_" + to_string(dtype) + "_" + std::to_string(n),
                                vectorized(f, widths[n % 3]), random(), tolerance_of(dtype)));
    }
  }
  return cases;
}

std::vector<KernelCase> math_cases(const Target& target) {
  const Intrinsic functions[] = {Intrinsic::exp,
                                 Intrinsic::exp2,
                                 Intrinsic::log,
                                 Intrinsic::log2,
                                 Intrinsic::rsqrt,
                                 Intrinsic::tanh,
                                 Intrinsic::erf,
                                 Intrinsic::sigmoid,
                                 Intrinsic::sin,
                                 Intrinsic::cos,
                                 Intrinsic::tan,
                                 Intrinsic::asin,
                                 Intrinsic::acos,
                                 Intrinsic::atan,
                                 Intrinsic::sinh,
                                 Intrinsic::cosh,
                                 Intrinsic::asinh,
                                 Intrinsic::acosh,
                                 Intrinsic::atanh,
                                 Intrinsic::pow,
                                 Intrinsic::fmod,
                                 Intrinsic::normal_cdf,
                                 Intrinsic::exp_nonpositive};
  std::vector<KernelCase> cases;
  for (const DType dtype : {f32, f64, f16, bf16}) {
    for (const Intrinsic function : functions) {
      if (function == Intrinsic::fmod && dtype == f64 && !target.has_fma) continue;
      const auto a = te::placeholder("A", {83}, dtype), b = te::placeholder("B", {83}, dtype);
      const auto c = te::compute("C", {83}, {a, b}, [&](const te::Indices& s) {
        if (function == Intrinsic::pow)
          return call(function, {call(Intrinsic::abs, {a(s)}), b(s) * const_of(dtype, 3)});
        if (function == Intrinsic::fmod) return call(function, {a(s) * const_of(dtype, 100), b(s)});
        return call(function, {a(s)});
      });
      cases.push_back(make_case("math_" + to_text(function) + "_" + to_string(dtype),
                                vectorized(te::make_func("f", {a, b}, {c}), target.lanes(f32)), 5,
                                dtype == f32 ? 1e-6 : tolerance_of(dtype)));
    }
  }
  return cases;
}

// x and, at every third position, the integer type's limits, what is beyond them, infinities and a NaN.
static Expr with_limits(Expr x, const Expr& position, DType integer) {
  const double end = std::ldexp(1.0, integer.bits);
  const double limits[] = {end,     -end,     end / 2, -end / 2, end - 1,   end / 2 - 1,
                           3 * end, -3 * end, 0.99,    HUGE_VAL, -HUGE_VAL, std::nan("")};
  int at = 0;
  for (const double limit : limits) x = select(equal(position, at), const_of(x.dtype(), limit), x), at += 3;
  return x;
}

std::vector<KernelCase> conversion_cases(const Target& target) {
  std::vector<KernelCase> cases;
  auto add_case = [&](const std::string& name, DType from, DType to, const std::function<Expr(Expr)>& convert) {
    const auto a = te::placeholder("A", {37}, from);
    const auto c = te::compute("C", {37}, {a}, [&](const te::Indices& s) {
      const Expr value = a({s[0]});
      if (!from.is_float() || to.is_float() || to.is_bool()) return convert(value);
      return convert(with_limits(value * const_of(from, 50), s[0], to));  // magnitudes that need not round to zero
    });
    cases.push_back(make_case(name + "_" + to_string(from) + "_" + to_string(to),
                              vectorized(te::make_func("f", {a}, {c}), target.lanes(f32)), 3, tolerance_of(to)));
  };
  for (DType from : all_types) {
    for (DType to : all_types) {
      if (from != to) add_case("convert", from, to, [&](const Expr& x) { return cast(to, x); });
    }
  }
  // Codes of quantised operators.
  for (DType from : {f32, f64}) {
    for (DType to : {i8, u8, i16, u16}) {
      const double low = to.is_unsigned_integer() ? 0 : -std::ldexp(1.0, to.bits - 1);
      add_case("clip", from, to, [&](const Expr& x) {
        const Expr above = call(Intrinsic::maximum, {call(Intrinsic::round_even, {x}), const_of(from, low)});
        return cast(to, call(Intrinsic::minimum, {above, const_of(from, low + std::ldexp(1.0, to.bits) - 1)}));
      });
    }
  }
  return cases;
}

std::vector<KernelCase> lane_reduction_cases(const Target& target) {
  std::vector<KernelCase> cases;
  const std::pair<const char*, te::Combiner> combiners[] = {
      {"sum", te::Combiner::sum}, {"product", te::Combiner::product}, {"min", te::Combiner::min},
      {"max", te::Combiner::max}, {"all", te::Combiner::logical_and}, {"any", te::Combiner::logical_or}};
  for (const auto& [name, combiner] : combiners) {
    const bool is_logical = combiner == te::Combiner::logical_and || combiner == te::Combiner::logical_or;
    for (DType dtype : all_types) {
      if (dtype.is_bool() != is_logical) continue;
      const int64_t length = 3 * target.lanes(f32) + 5;
      const auto a = te::placeholder("A", {5, length}, dtype);
      const auto c = te::reduce("C", {5}, {length}, combiner, {a},
                                [&](const te::Indices& s, const te::Indices& r) { return a({s[0], r[0]}); });
      Func f = te::make_func("f", {a}, {c});
      // As a schedule that may reorder the operation would leave it: lanes of the reduced loop.
      Schedule schedule(f);
      const auto loops = schedule.loops(schedule.block("C"));
      schedule.split(loops[1], {std::nullopt, 2 * target.lanes(f32)});
      const BlockRef zero = schedule.decompose_reduction(schedule.block("C"), schedule.loops(schedule.block("C"))[1]);
      (void)zero;
      f = schedule.func();
      f.body = rewrite(f.body, [&](const For& loop) -> Stmt {
        if (!is_const_int(loop.extent, 2 * target.lanes(f32))) return {};
        return make_stmt<For>(loop.var, loop.extent, LoopKind::vectorized, loop.body);
      });
      const double tolerance = dtype.bits == 16 && dtype.is_float() ? 0.1 : tolerance_of(dtype);
      cases.push_back(make_case(std::string("lanes_") + name + "_" + to_string(dtype), f, 5, tolerance));
    }
  }
  return cases;
}

std::vector<KernelCase> stride_cases(const Target& target) {
  std::vector<KernelCase> cases;
  for (int64_t stride : {-2, -1, 0, 1, 2, 3, 4, 7}) {
    for (DType dtype : {f32, f64, i8, i16, boolean}) {
      const int64_t length = 4 * target.lanes(dtype) + 3;
      const int64_t span = (length - 1) * std::abs(stride) + 1;
      const auto a = te::placeholder("A", {span}, dtype);
      const auto c = te::compute("C", {length}, {a}, [&](const te::Indices& s) {
        return a({stride < 0 ? s[0] * stride + (span - 1) : s[0] * stride});
      });
      const std::string name = to_string(dtype) + "_" + (stride < 0 ? "minus_" : "") + std::to_string(std::abs(stride));
      cases.push_back(make_case("load_" + name, vectorized(te::make_func("f", {a}, {c}), target.lanes(dtype)), 9, 0));
    }
  }
  // Transposed writes are strided stores.
  for (DType dtype : {f32, i8}) {
    const auto a = te::placeholder("A", {7, 33}, dtype);
    const auto c = te::compute("C", {33, 7}, {a}, [&](const te::Indices& s) { return a({s[1], s[0]}); });
    Schedule schedule(te::make_func("f", {a}, {c}));
    auto loops = schedule.loops(schedule.block("C"));
    schedule.reorder({loops[1], loops[0]});
    const auto parts = schedule.split(loops[0], {std::nullopt, 8});
    schedule.vectorize(parts[1]);
    cases.push_back(make_case("store_strided_" + to_string(dtype), schedule.func(), 13, 0));
  }
  return cases;
}

std::vector<KernelCase> transposition_cases(const Target& target) {
  std::vector<KernelCase> cases;
  const auto add = [&](const std::string& name, const Func& f, const std::map<std::string, int64_t>& sizes = {}) {
    Schedule schedule = target.default_schedule(f, target);
    cases.push_back(make_case(name, schedule.func(), 17, tolerance_of(f.buffers.back()->dtype), sizes));
    if (!sizes.empty()) return;
    Target without_caches = target;
    without_caches.l2.bytes = without_caches.l3.bytes = 0;
    schedule = target.default_schedule(f, without_caches);
    cases.push_back(make_case(name + "_streaming", schedule.func(), 17, tolerance_of(f.buffers.back()->dtype)));
  };
  for (DType dtype : {f64, f32, bf16, i8, boolean}) {
    const std::pair<int64_t, int64_t> sizes[] = {{64, 128}, {37, 53}, {5, 200}, {100, 6}, {3, 70}, {70, 2}};
    for (const auto& [rows, columns] : sizes) {
      const auto a = te::placeholder("A", {rows, columns}, dtype);
      const auto c = te::compute("C", {columns, rows}, {a}, [&](const te::Indices& s) { return a({s[1], s[0]}); });
      add("transpose_" + to_string(dtype) + "_" + std::to_string(rows) + "_" + std::to_string(columns),
          te::make_func("f", {a}, {c}));
    }
  }
  // Rows, and tasks of several pages.
  add("softmax", softmax(64, 100));
  add("layer_norm", layer_norm(20, 128));
  add("gelu", gelu(32, 1024));
  add("max_pool_planar", max_pool(3, 40, 3, 2, 1));
  // Maps of channels, last and first, and in blocks.
  for (const auto& [channels, height, width] : {std::tuple(32, 8, 16), std::tuple(19, 5, 7), std::tuple(3, 9, 11)}) {
    const std::string name = std::to_string(channels) + "_" + std::to_string(height) + "_" + std::to_string(width);
    const auto first = te::placeholder("A", {2, channels, height, width});
    const auto last = te::placeholder("A", {2, height, width, channels});
    const auto beside = te::placeholder("B", {2, height, width, channels});
    add("channels_last_" + name,
        te::make_func("f", {first, beside}, {te::compute("C", last.shape(), {first, beside}, [&](const te::Indices& s) {
                        return first({s[0], s[3], s[1], s[2]}) * beside(s) + const_of(f32, 1);
                      })}));
    add("channels_first_" + name,
        te::make_func("f", {last}, {te::compute("C", first.shape(), {last}, [&](const te::Indices& s) {
                        return last({s[0], s[2], s[3], s[1]});
                      })}));
    for (const bool is_result : {false, true}) {
      if (is_result && channels % 16 != 0) continue;  // nobody writes what fills a block
      // Of sizes that are known, and of an open height and width.
      for (const bool is_open : {false, true}) {
        const Var h("height"), w("width");
        const auto image =
            te::placeholder("A", {2, channels, is_open ? Expr(h) : Expr(height), is_open ? Expr(w) : Expr(width)});
        const auto result = te::compute("C", image.shape(), {image},
                                        [&](const te::Indices& s) { return max(image(s), const_of(f32, 0)); });
        Schedule schedule(te::make_func("f", {image}, {result}, is_open ? std::vector{h, w} : std::vector<Var>()));
        schedule.transform_layout(is_result ? "C" : "A", parse_index_map("(n, c, h, w) -> (n, c // 16, h, w, c % 16)"));
        const std::string kind = std::string(is_open ? "open_" : "") + (is_result ? "to_blocks_" : "from_blocks_");
        const std::map<std::string, int64_t> sizes{{"height", height}, {"width", width}};
        add(kind + name, schedule.func(), is_open ? sizes : std::map<std::string, int64_t>());
      }
    }
  }
  return cases;
}

namespace {

// A convolution by 1 × 1 of bytes, channels last, to bytes again: stored likewise, or channel by channel.
Func requantized_conv(int64_t channels, int64_t filters, int64_t height, int64_t width, bool is_channels_last) {
  const te::Tensor x = te::placeholder("X", {1, height, width, channels}, i8),
                   w = te::placeholder("W", {filters, channels}, i8);
  const auto filter = [&](const te::Indices& s) { return is_channels_last ? s[3] : s[1]; };
  const auto pixel = [&](const te::Indices& s) {
    return is_channels_last ? std::pair{s[1], s[2]} : std::pair{s[2], s[3]};
  };
  const std::vector<Expr> shape =
      is_channels_last ? std::vector<Expr>{1, height, width, filters} : std::vector<Expr>{1, filters, height, width};
  const te::Tensor y =
      te::reduce("Y", shape, {channels}, te::Combiner::sum, {x, w}, [&](const te::Indices& s, const te::Indices& r) {
        return cast(i32, x({s[0], pixel(s).first, pixel(s).second, r[0]})) * cast(i32, w({filter(s), r[0]}));
      });
  const te::Tensor out = te::compute("out", shape, {y}, [&](const te::Indices& s) {
    const Expr scaled = call(Intrinsic::round_even, {cast(f32, y(s)) * const_of(f32, 0.004)});
    return cast(i8, max(min(scaled, const_of(f32, 127)), const_of(f32, -128)));
  });
  Func f = te::make_func("requantized_conv", {x, w}, {out});
  mark_constant(f, "W");
  return f;
}

}  // namespace

std::vector<KernelCase> small_element_cases(const Target& target) {
  std::vector<KernelCase> cases;
  if (target.instructions.empty()) return cases;
  const auto add = [&](const Func& func, const DType a) {
    const std::string name = "small_" + std::to_string(cases.size()) + "_" + to_string(a);
    cases.push_back(make_case(name, target.default_schedule(func, target).func(), 5 + cases.size(), 0));
  };
  for (const DType a : {i8, u8}) {
    for (const auto& [batch, m, n, k] :
         {std::array{1, 16, 24, 96}, std::array{1, 15, 37, 104}, std::array{1, 2, 3, 64}, std::array{1, 3, 9, 8},
          std::array{1, 1, 40, 64}, std::array{1, 61, 65, 136}, std::array{1, 15, 40, 92}})
      add(narrow_matmul(batch, m, n, k, a, i8, i32, i32, true), a);
    for (const int64_t n : {17, 18}) add(narrow_matmul(3, 21, n, 64, a, i8, i32, i32, false), a);
  }
  add(narrow_conv(32, 48, 9, i8, i32), i8);
  add(narrow_conv(88, 48, 9, i8, i32, 1, 64), i8);
  for (const bool is_channels_last : {false, true}) {
    add(requantized_conv(64, 45, 7, 9, is_channels_last), i8);
    add(requantized_conv(32, 40, 6, 8, is_channels_last), i8);
  }
  return cases;
}

std::vector<KernelCase> instruction_cases(const Target& target) {
  std::vector<KernelCase> cases;
  std::mt19937_64 random(3);
  for (const MachineInstruction& instruction : target.instructions) {
    if (kind_of(instruction.intrinsic) != IntrinsicKind::dot) continue;
    const std::string name = to_text(instruction.intrinsic);
    const bool is_float = instruction.intrinsic == Intrinsic::dot_bf16;
    const DType sum = is_float ? f32 : i32, word = u32;
    for (const int64_t n : {1, 3, 4, 7, 8, 16, 21, 37}) {
      for (const bool has_tail : {false, true}) {
        const Buffer s("S", sum, {n}), a("A", u16, {2 * n}), b("B", u16, {2 * n}), c("C", sum, {n}), d("D", sum, {n});
        const Var outer("outer"), inner("inner");
        const Expr i = has_tail ? outer * 16 + inner : Expr(inner);
        const auto word_of = [&](const Buffer& buffer, const Expr& at) {
          return make_expr<Call>(word, Intrinsic::word_at, std::vector<Expr>{load(buffer, {at})});
        };
        // Two vectors; and one element for all lanes.
        Stmt body =
            seq({store(c, {i}, call(instruction.intrinsic, {load(s, {i}), word_of(a, i * 2), word_of(b, i * 2)})),
                 store(d, {i}, call(instruction.intrinsic, {load(s, {i}), word_of(a, 0), word_of(b, i * 2)}))});
        if (has_tail) body = make_stmt<If>(i < Expr(n), body);
        body = make_stmt<For>(inner, has_tail ? Expr(16) : Expr(n), LoopKind::vectorized, body);
        if (has_tail) body = make_stmt<For>(outer, Expr((n + 15) / 16), LoopKind::serial, body);
        Func func;
        func.name = name + "_" + std::to_string(n) + (has_tail ? "_tail" : "");
        func.buffers = {s, a, b, c, d};
        func.output_count = 2;
        func.body = body;
        KernelCase result{func.name, func, random_buffers(func, random()), {}, 0};
        // Any bits; as bf16 and f32 of every magnitude, subnormal ones included, but infinities and NaNs.
        const auto finite = [&](uint32_t bits, int fraction) {
          const uint32_t exponent = random() % 8 == 0 ? 0 : 40 + random() % 120, mask = 0xffu << fraction;
          return (bits & ~mask) | exponent << fraction;
        };
        for (int input = 0; input < 3; ++input) {
          NDArray& array = result.inputs[static_cast<size_t>(input)];
          for (int64_t e = 0; e < array.size(); ++e) {
            auto bits = static_cast<uint32_t>(random());
            if (input == 0) {
              if (is_float) bits = finite(bits, 23);
              std::memcpy(static_cast<uint32_t*>(array.data()) + e, &bits, 4);
            } else {
              static_cast<uint16_t*>(array.data())[e] = static_cast<uint16_t>(is_float ? finite(bits, 7) : bits);
            }
          }
        }
        interpret(func, result.inputs);
        result.expected = {result.inputs[3], result.inputs[4]};
        result.inputs.resize(3);
        cases.push_back(std::move(result));
      }
    }
  }
  return cases;
}

namespace {

// C = A · B of tiles I × J × K of the unit's sizes, from words in memory; any bits, but no infinities and NaNs.
KernelCase tile_case(Intrinsic product, int64_t m, int64_t n, int64_t k, uint64_t seed) {
  const std::string name = to_text(product);
  const bool is_float = product == Intrinsic::tile_dot_bf16;
  const std::string sum = is_float ? "f32" : "i32", suffix = sum + "(";
  const std::string a = is_float                              ? "bf16"
                        : product == Intrinsic::tile_dot_u8s8 ? "u8"
                                                              : "i8",
                    b = is_float ? "bf16" : "i8";
  const int64_t g = is_float ? 2 : 4;
  const auto text = [](int64_t value) { return std::to_string(value); };
  // Two by two tiles, three steps; the second k of a step is 5 rows further on than the first one needs.
  const std::string mn = text(m * n), lanes = "x" + mn, tile_a = ":i64x" + text(m * k), tile_b = ":i64x" + text(k * n);
  const int64_t row_a = 3 * k * g + 8, row_b = 2 * n * g;
  std::string body;
  for (int t = 0; t < 4; ++t)
    body += "T[ramp(" + text(t * m * n) + ", 1, " + mn + ")] = broadcast(" + (is_float ? "0.0f" : "0i32") + ", " + mn +
            ")\n";
  body += "for s in 0..3 {\n";
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const std::string at = "T[ramp(" + text((i * 2 + j) * m * n) + ", 1, " + mn + ")]";
      body += at + " = " + name + "(" + at + ", word_at:u32x" + text(m * k) + "(A[tile_at" + tile_a + "(s * " +
              text(k * g) + " + " + text(i * m * row_a) + ", " + text(row_a) + ", " + text(m) + ", " + text(g) + ", " +
              text(k) + ")])" + ", word_at:u32x" + text(k * n) + "(B[tile_at" + tile_b + "(s * " + text(k * row_b) +
              " + " + text(j * n * g) + ", " + text(row_b) + ", " + text(k) + ", " + text(g) + ", " + text(n) +
              ")]))\n";
    }
  }
  body += "}\n";
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      body += "C[tile_at:i64" + lanes + "(" + text(i * m * 2 * n + j * n) + ", " + text(2 * n) + ", " + text(m) +
              ", 1, " + text(n) + ")] = T[ramp(" + text((i * 2 + j) * m * n) + ", 1, " + mn + ")]\n";
  const std::string label = name + "_" + text(m) + "_" + text(n) + "_" + text(k);
  const Func func = parse_func("func " + label + "(A: " + a + "[" + text(2 * m * row_a) + "], B: " + b + "[" +
                               text(3 * k * row_b) + "]) -> (C: " + sum + "[" + text(4 * m * n) + "]) {\n" +
                               "alloc T: " + sum + "[" + text(4 * m * n) + "] in register\n" + body + "}");
  KernelCase result{label, func, random_buffers(func, seed), {}, 0};
  std::mt19937_64 random(seed);
  for (int input = 0; input < 2; ++input) {
    NDArray& array = result.inputs[static_cast<size_t>(input)];
    auto* bytes = static_cast<uint8_t*>(array.data());
    for (int64_t e = 0; e < array.size(); ++e) {
      if (!is_float) {
        bytes[e] = static_cast<uint8_t>(random());
        continue;
      }
      const uint32_t exponent = random() % 8 == 0 ? 0 : 60 + random() % 120;  // subnormal ones included
      const auto bits = static_cast<uint16_t>((random() & 0x807f) | exponent << 7);
      std::memcpy(bytes + 2 * e, &bits, 2);
    }
  }
  interpret(func, result.inputs);
  result.expected = {result.inputs[2]};
  result.inputs.resize(2);
  return result;
}

}  // namespace

std::vector<KernelCase> tile_cases(const Target& target) {
  std::vector<KernelCase> cases;
  for (const Intrinsic product : target.tiles.products) {
    uint64_t seed = 1;
    for (const auto& [m, n, k] : {std::array{16, 16, 16}, std::array{7, 16, 16}, std::array{16, 16, 5},
                                  std::array{3, 4, 2}, std::array{14, 16, 8}, std::array{1, 16, 16}})
      cases.push_back(tile_case(product, m, n, k, seed++));
  }
  return cases;
}

std::string compare(const KernelCase& kernel_case, const std::vector<NDArray>& outputs, const Target& target) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double difference = largest_difference(outputs[i], kernel_case.expected[i]);
    if (difference <= kernel_case.tolerance) continue;
    return kernel_case.name + " on " + target.name + ": difference " + std::to_string(difference);
  }
  return "";
}

}  // namespace tw::test
