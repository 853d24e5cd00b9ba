#include "targets/cuda/requantise.h"

#include <cmath>
#include <utility>

#include "tensor_ir/match.h"

namespace tw::cuda {
namespace {

std::optional<double> number_of(const Expr& e) {
  const auto* lanes = e.as<Broadcast>();
  const auto* number = (lanes ? lanes->value : e).as<FloatImm>();
  return number ? std::optional(number->value) : std::nullopt;
}

const Call* call_of(const Expr& e, Intrinsic intrinsic) {
  const auto* call = e.as<Call>();
  return call && call->intrinsic == intrinsic ? call : nullptr;
}

struct Rounded {
  Expr value;
  Limits to;
};

// Of a conversion to bytes.
std::optional<Rounded> match_rounded(const Cast& conversion) {
  const DType to = conversion.dtype.element();
  const Call* below = to == i8 || to == u8 ? call_of(conversion.value, Intrinsic::minimum) : nullptr;
  const Call* above = below ? call_of(below->arguments[0], Intrinsic::maximum) : nullptr;
  if (!above) return std::nullopt;
  Expr rounded = above->arguments[0];
  std::optional<double> zero_point = 0;
  if (const auto* sum = rounded.as<Binary>(); sum && sum->op == BinaryOp::add)
    zero_point = number_of(sum->b), rounded = sum->a;
  const auto low = number_of(above->arguments[1]), high = number_of(below->arguments[1]);
  const Call* round = call_of(rounded, Intrinsic::round_even);
  if (!round || !zero_point || !low || !high) return std::nullopt;
  for (const double number : {*zero_point, *low, *high})
    if (std::abs(number) > 256 || number != std::trunc(number)) return std::nullopt;
  return Rounded{round->arguments[0], {*zero_point, *low, *high}};
}

}  // namespace

std::optional<Requantised> match_requantised(const Cast& conversion) {
  const auto rounded = match_rounded(conversion);
  if (!rounded || rounded->value.dtype().element() != f64) return std::nullopt;
  const auto* product = rounded->value.as<Binary>();
  const auto* sum = product && product->op == BinaryOp::mul ? product->a.as<Cast>() : nullptr;
  if (!sum || sum->value.dtype().element() != i32) return std::nullopt;
  return Requantised{sum->value, product->b, rounded->to};
}

std::optional<QuantisedFloat> match_quantised(const Cast& conversion) {
  const auto rounded = match_rounded(conversion);
  if (!rounded || rounded->value.dtype().element() != f32) return std::nullopt;
  return QuantisedFloat{rounded->value, rounded->to};
}

}  // namespace tw::cuda
