// What products of fragments do, and conversions of the codes that they multiply.
#include "tensor_ir/interp/machine.h"
#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/type_rules.h"

namespace tw::interp {
namespace {

double as_it_is(Slot x) {
  return x.f;
}
double as_tf32(Slot x) {
  return meaning::round_to_tf32(x.f);
}
template <DType format>
double as_code(Slot x) {
  return minifloat_to_float(format, static_cast<uint8_t>(x.i));
}

// lanes: k; dtype: with m · n lanes; from.lanes: n
template <double (*of_a)(Slot) = as_it_is, double (*of_b)(Slot) = of_a>
const Instr* fragment_call(const Instr* in, Frame& f) {
  const int k = in->lanes, n = in->from.lanes;
  for (int i = 0; i < in->dtype.lanes; ++i) {
    const Slot *a = &f.slots[in->b + i / n * k], *b = &f.slots[in->c + i % n * k];
    double sum = f.slots[in->a + i].f;
    for (int l = 0; l < k; ++l) sum += of_a(a[l]) * of_b(b[l]);
    f.slots[in->dst + i].f = static_cast<float>(sum);
  }
  return in + 1;
}
const Instr* integer_fragment_call(const Instr* in, Frame& f) {
  const int k = in->lanes, n = in->from.lanes;
  for (int i = 0; i < in->dtype.lanes; ++i) {
    const Slot *a = &f.slots[in->b + i / n * k], *b = &f.slots[in->c + i % n * k];
    int64_t sum = f.slots[in->a + i].i;
    for (int l = 0; l < k; ++l) sum += a[l].i * b[l].i;
    f.slots[in->dst + i].i = meaning::wrap(i32, sum);
  }
  return in + 1;
}

const Instr* decode_call(const Instr* in, Frame& f) {  // target: the intrinsic
  const DType format = code_format(static_cast<Intrinsic>(in->target));
  for (int l = 0; l < in->lanes; ++l)
    f.slots[in->dst + l].f = minifloat_to_float(format, static_cast<uint8_t>(f.slots[in->a + l].i));
  return in + 1;
}
const Instr* encode_call(const Instr* in, Frame& f) {
  const DType format = code_format(static_cast<Intrinsic>(in->target));
  for (int l = 0; l < in->lanes; ++l)
    f.slots[in->dst + l].i = float_to_minifloat(format, static_cast<float>(f.slots[in->a + l].f));
  return in + 1;
}

}  // namespace

Handler fragment_handler(Intrinsic intrinsic, DType sums) {
  switch (intrinsic) {
    case Intrinsic::mma_tf32:
      return fragment_call<as_tf32>;
    case Intrinsic::mma_e4m3e4m3:
    case Intrinsic::wgmma_e4m3e4m3:
      return fragment_call<as_code<f8e4m3fn>>;
    case Intrinsic::mma_e4m3e5m2:
    case Intrinsic::wgmma_e4m3e5m2:
      return fragment_call<as_code<f8e4m3fn>, as_code<f8e5m2>>;
    case Intrinsic::mma_e5m2e4m3:
    case Intrinsic::wgmma_e5m2e4m3:
      return fragment_call<as_code<f8e5m2>, as_code<f8e4m3fn>>;
    case Intrinsic::mma_e5m2e5m2:
    case Intrinsic::wgmma_e5m2e5m2:
      return fragment_call<as_code<f8e5m2>>;
    default:
      return sums.is_float() ? fragment_call<> : integer_fragment_call;
  }
}

Handler decode_handler() {
  return decode_call;
}
Handler encode_handler() {
  return encode_call;
}

}  // namespace tw::interp
