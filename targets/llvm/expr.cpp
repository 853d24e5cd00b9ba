// Expressions, with the meaning that ir.h gives them.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "targets/llvm/codegen.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

bool is_sixteen_bit_float(DType dtype) {
  return dtype.is_float() && dtype.bits == 16;
}

[[noreturn]] void refuse(const Expr& e, const std::string& why) {
  throw Error(ErrorCode::lower, to_text(e) + ": " + why);
}

}  // namespace

llvm::Value* KernelCodegen::emit(const Expr& e) {
  switch (e.kind()) {
    case NodeKind::IntImm:
      return constant(type_of(e.dtype()), e.as<IntImm>()->value);
    case NodeKind::FloatImm: {
      const double value = e.as<FloatImm>()->value;
      const DType dtype = e.dtype();
      if (dtype.element() == f16) return constant(type_of(dtype), float_to_f16(static_cast<float>(value)));
      if (dtype.element() == bf16) return constant(type_of(dtype), float_to_bf16(static_cast<float>(value)));
      if (dtype == f32) return llvm::ConstantFP::get(context_, llvm::APFloat(static_cast<float>(value)));
      return llvm::ConstantFP::get(context_, llvm::APFloat(value));
    }
    case NodeKind::Var: {
      const auto found = vars_.find(e.get());
      check(found != vars_.end(), "codegen: every variable is bound");
      return found->second;
    }
    case NodeKind::Unary:
      return emit_unary(*e.as<Unary>());
    case NodeKind::Binary:
      return emit_binary(*e.as<Binary>());
    case NodeKind::Cast:
      return emit_cast(*e.as<Cast>());
    case NodeKind::Select: {
      const Select& s = *e.as<Select>();
      llvm::Value* condition = emit(s.condition);
      llvm::Value* then_value = emit(s.then_value);
      return builder_.CreateSelect(condition, then_value, emit(s.else_value));
    }
    case NodeKind::Call:
      return emit_call(*e.as<Call>());
    case NodeKind::Load:
      return emit_load(*e.as<Load>());
    case NodeKind::Ramp: {
      const Ramp& r = *e.as<Ramp>();
      llvm::Value* steps =
          builder_.CreateMul(builder_.CreateStepVector(type_of(r.dtype)), splat(emit(r.stride), r.dtype.lanes));
      return builder_.CreateAdd(splat(emit(r.base), r.dtype.lanes), steps);
    }
    case NodeKind::Broadcast:
      return splat(emit(e.as<Broadcast>()->value), e.dtype().lanes);
    case NodeKind::VectorReduce:
      return emit_vector_reduce(*e.as<VectorReduce>());
    case NodeKind::Let: {
      const Let& let = *e.as<Let>();
      vars_[let.var.get()] = emit(let.value);
      depths_[let.var.get()] = depth_of(let.value);
      return emit(let.body);
    }
    default:
      internal_error("codegen: not an expression");
  }
}

llvm::Value* KernelCodegen::emit_unary(const Unary& e) {
  llvm::Value* a = emit(e.a);
  check(!is_sixteen_bit_float(e.dtype) || e.op != UnaryOp::negate, "codegen: legalize_types has run");
  switch (e.op) {
    case UnaryOp::negate:
      return e.dtype.is_float() ? builder_.CreateFNeg(a) : builder_.CreateNeg(a);
    case UnaryOp::logical_not:
    case UnaryOp::bit_not:
      return builder_.CreateNot(a);
  }
  internal_error("codegen: unary operation");
}

// Whether a float is certainly no NaN: constants.
static bool is_number(const Expr& e) {
  const auto value = as_float(e);
  return value && *value == *value;
}

llvm::Value* KernelCodegen::emit_binary(const Binary& e) {
  const DType dtype = e.a.dtype();
  check(!is_sixteen_bit_float(dtype), "codegen: legalize_types has run");
  if (dtype.is_vector() && dtype.element() == i64 && (e.op == BinaryOp::lt || e.op == BinaryOp::le)) {
    if (llvm::Value* result = emit_lane_comparison(e)) return result;
  }
  llvm::Value* a = emit(e.a);
  llvm::Value* b = emit(e.b);
  if (!dtype.is_float() &&
      (e.op == BinaryOp::div || e.op == BinaryOp::mod || e.op == BinaryOp::floor_div || e.op == BinaryOp::floor_mod)) {
    return emit_division(e, a, b);
  }
  return emit_operation(e.op, dtype, a, b, is_number(e.a), is_number(e.b));
}

llvm::Value* KernelCodegen::emit_operation(BinaryOp op, DType dtype, llvm::Value* a, llvm::Value* b, bool is_a_number,
                                           bool is_b_number) {
  const bool is_float = dtype.is_float();
  const bool is_unsigned = dtype.is_unsigned_integer() || dtype.is_bool();
  switch (op) {
    case BinaryOp::add:
      return is_float ? builder_.CreateFAdd(a, b) : builder_.CreateAdd(a, b);
    case BinaryOp::sub:
      return is_float ? builder_.CreateFSub(a, b) : builder_.CreateSub(a, b);
    case BinaryOp::mul:
      return is_float ? builder_.CreateFMul(a, b) : builder_.CreateMul(a, b);
    case BinaryOp::div:
      check(is_float, "codegen: integer division has its own function");
      return builder_.CreateFDiv(a, b);
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
      throw Error(ErrorCode::lower, "division with remainder of floats\n  help: use the intrinsics fmod and floor");
    case BinaryOp::min:
    case BinaryOp::max:
      return emit_min_max(op == BinaryOp::min, dtype, a, b, is_a_number, is_b_number);
    case BinaryOp::eq:
      return is_float ? builder_.CreateFCmpOEQ(a, b) : builder_.CreateICmpEQ(a, b);
    case BinaryOp::ne:
      return is_float ? builder_.CreateFCmpUNE(a, b) : builder_.CreateICmpNE(a, b);
    case BinaryOp::lt:
      if (is_float) return builder_.CreateFCmpOLT(a, b);
      return is_unsigned ? builder_.CreateICmpULT(a, b) : builder_.CreateICmpSLT(a, b);
    case BinaryOp::le:
      if (is_float) return builder_.CreateFCmpOLE(a, b);
      return is_unsigned ? builder_.CreateICmpULE(a, b) : builder_.CreateICmpSLE(a, b);
    case BinaryOp::logical_and:
    case BinaryOp::bit_and:
      return builder_.CreateAnd(a, b);
    case BinaryOp::logical_or:
    case BinaryOp::bit_or:
      return builder_.CreateOr(a, b);
    case BinaryOp::bit_xor:
      return builder_.CreateXor(a, b);
    case BinaryOp::shift_left:
      return builder_.CreateShl(a, b);
    case BinaryOp::shift_right:
      return is_unsigned ? builder_.CreateLShr(a, b) : builder_.CreateAShr(a, b);
  }
  internal_error("codegen: binary operation");
}

// ramp(base, 1, n) < broadcast(bound): in i32, after the distance to the bound is clamped to the lanes there are; eight
// times i64 comparisons would take twice the registers.
llvm::Value* KernelCodegen::emit_lane_comparison(const Binary& e) {
  const auto* r = e.a.as<Ramp>();
  const auto* bound = e.b.as<Broadcast>();
  if (!r || !bound || !is_const_int(r->stride, 1)) return nullptr;
  const int lanes = r->dtype.lanes;
  llvm::Value* distance = builder_.CreateSub(emit(bound->value), emit(r->base), "", false, true);
  if (e.op == BinaryOp::le) distance = builder_.CreateAdd(distance, builder_.getInt64(1), "", false, true);
  distance = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, distance, builder_.getInt64(lanes));
  distance = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, distance, builder_.getInt64(0));
  llvm::Value* count = splat(builder_.CreateTrunc(distance, builder_.getInt32Ty()), lanes);
  return builder_.CreateICmpULT(builder_.CreateStepVector(count->getType()), count);
}

llvm::Value* KernelCodegen::emit_min_max(bool is_min, DType dtype, llvm::Value* a, llvm::Value* b, bool is_a_number,
                                         bool is_b_number) {
  if (!dtype.is_float()) {
    const bool is_unsigned = dtype.is_unsigned_integer() || dtype.is_bool();
    const auto id = is_min ? (is_unsigned ? llvm::Intrinsic::umin : llvm::Intrinsic::smin)
                           : (is_unsigned ? llvm::Intrinsic::umax : llvm::Intrinsic::smax);
    return builder_.CreateBinaryIntrinsic(id, a, b);
  }
  if (target_.architecture == "aarch64")  // has an instruction with just this meaning
    return builder_.CreateBinaryIntrinsic(is_min ? llvm::Intrinsic::minnum : llvm::Intrinsic::maxnum, a, b);
  if (is_a_number && !is_b_number) std::swap(a, b), std::swap(is_a_number, is_b_number);
  // A comparison with a NaN is false and gives b; that is right unless b is the NaN.
  llvm::Value* is_a = is_min ? builder_.CreateFCmpOLT(a, b) : builder_.CreateFCmpOGT(a, b);
  llvm::Value* result = builder_.CreateSelect(is_a, a, b);
  if (is_b_number) return result;
  return builder_.CreateSelect(builder_.CreateFCmpUNO(b, b), a, result);
}

llvm::Value* KernelCodegen::emit_min_max_propagating(bool is_min, DType dtype, llvm::Value* a, llvm::Value* b,
                                                     bool is_b_number) {
  if (target_.architecture == "aarch64")
    return builder_.CreateBinaryIntrinsic(is_min ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum, a, b);
  // Then a comparison with a NaN, which is false, has to give a: one instruction.
  if (is_b_number) return emit_min_max(is_min, dtype, b, a, true, true);
  // A comparison with a NaN is false and gives b; that is right unless only a is the NaN.  (A NaN of our own instead of
  // a: with a, LLVM makes one select of the two, which needs a second comparison for what is one instruction, max.)
  llvm::Value* is_a = is_min ? builder_.CreateFCmpOLT(a, b) : builder_.CreateFCmpOGT(a, b);
  llvm::Value* result = builder_.CreateSelect(is_a, a, b);
  return builder_.CreateSelect(builder_.CreateFCmpUNO(a, a), llvm::ConstantFP::getNaN(a->getType()), result);
}

bool KernelCodegen::is_non_negative(const Expr& e) const {
  if (const auto value = as_int(e)) return *value >= 0;
  if (e.kind() == NodeKind::Var) return depths_.count(e.get()) > 0 && llvm::isa<llvm::PHINode>(vars_.at(e.get()));
  if (const auto* b = e.as<Binary>()) {
    switch (b->op) {
      case BinaryOp::add:
      case BinaryOp::mul:
      case BinaryOp::floor_div:
      case BinaryOp::div:
      case BinaryOp::min:
        return is_non_negative(b->a) && is_non_negative(b->b);
      case BinaryOp::max:
        return is_non_negative(b->a) || is_non_negative(b->b);
      case BinaryOp::floor_mod:
        return is_non_negative(b->b);
      default:
        return false;
    }
  }
  if (const auto* r = e.as<Ramp>()) return is_non_negative(r->base) && is_non_negative(r->stride);
  if (const auto* b = e.as<Broadcast>()) return is_non_negative(b->value);
  return false;
}

llvm::Value* KernelCodegen::emit_division(const Binary& e, llvm::Value* a, llvm::Value* b) {
  const DType dtype = e.a.dtype();
  const bool is_unsigned = dtype.is_unsigned_integer();
  const bool wants_quotient = e.op == BinaryOp::div || e.op == BinaryOp::floor_div;
  // Index arithmetic is i64 and does not come near its limits, so what is a sum of loop variables does not wrap.
  const bool is_natural = is_unsigned || (dtype.element() == i64 && is_non_negative(e.a) && is_non_negative(e.b));
  const DType divided_as = is_natural ? DType{DTypeKind::unsigned_integer, dtype.bits, dtype.lanes} : dtype;
  if (is_natural || e.op == BinaryOp::div || e.op == BinaryOp::mod)
    return emit_integer_division(wants_quotient, divided_as, a, b);
  const auto divisor = as_int(e.b);
  if (divisor && *divisor > 0 && (*divisor & (*divisor - 1)) == 0) {  // a power of two
    if (!wants_quotient) return builder_.CreateAnd(a, constant(a->getType(), *divisor - 1));
    return builder_.CreateAShr(a, constant(a->getType(), __builtin_ctzll(static_cast<uint64_t>(*divisor))));
  }
  llvm::Value* zero = llvm::Constant::getNullValue(a->getType());
  llvm::Value* remainder = emit_integer_division(false, dtype, a, b);
  llvm::Value* signs_differ = builder_.CreateICmpSLT(builder_.CreateXor(remainder, b), zero);
  llvm::Value* adjusts = builder_.CreateAnd(builder_.CreateICmpNE(remainder, zero), signs_differ);
  if (!wants_quotient) return builder_.CreateSelect(adjusts, builder_.CreateAdd(remainder, b), remainder);
  llvm::Value* quotient = emit_integer_division(true, dtype, a, b);
  return builder_.CreateAdd(quotient, builder_.CreateSExt(adjusts, a->getType()));
}

llvm::Value* KernelCodegen::emit_integer_division(bool wants_quotient, DType dtype, llvm::Value* a, llvm::Value* b) {
  if (dtype.is_unsigned_integer()) return wants_quotient ? builder_.CreateUDiv(a, b) : builder_.CreateURem(a, b);
  return wants_quotient ? builder_.CreateSDiv(a, b) : builder_.CreateSRem(a, b);
}

// ---------------------------------------------------------------------------------------------------------------
// Calls

// On the smallest vector that holds the lanes; those beyond them have any value.
llvm::Value* KernelCodegen::emit_instruction(const Call& e) {
  const MachineInstruction* instruction = target_.find_instruction(e.intrinsic);
  if (!instruction) {
    refuse(make_expr<Call>(e),
           target_.name + " has no such instruction\n  help: tensorize by what the target has only");
  }
  const int lanes = e.dtype.lanes;
  const auto fits =
      std::find_if(instruction->lanes.begin(), instruction->lanes.end(), [&](int l) { return l >= lanes; });
  check(fits != instruction->lanes.end(), "codegen: vectorize_loops keeps to the machine's vectors");
  auto widen = [&](const Expr& operand) {
    llvm::Value* value = emit(operand);
    if (lanes == *fits) return value;
    if (lanes > 1) return resized(value, *fits);
    llvm::Value* none =
        llvm::PoisonValue::get(llvm::FixedVectorType::get(value->getType(), static_cast<unsigned>(*fits)));
    return builder_.CreateInsertElement(none, value, uint64_t{0});
  };
  llvm::Value *sum = widen(e.arguments[0]), *a = widen(e.arguments[1]), *b = widen(e.arguments[2]);
  llvm::Value* result = instruction->emit(builder_, sum, a, b);
  if (lanes == *fits) return result;
  return lanes == 1 ? builder_.CreateExtractElement(result, uint64_t{0}) : resized(result, lanes);
}

llvm::Value* KernelCodegen::emit_call(const Call& e) {
  const auto& arguments = e.arguments;
  if (kind_of(e.intrinsic) == IntrinsicKind::dot || kind_of(e.intrinsic) == IntrinsicKind::matrix)
    return emit_instruction(e);
  if (e.intrinsic == Intrinsic::word_at) return load_words(*arguments[0].as<Load>(), e.dtype);
  if (e.intrinsic == Intrinsic::lane_slice) {
    llvm::Value* vector = emit(arguments[0]);
    const int64_t first = as_int(arguments[1]).value();
    if (!e.dtype.is_vector()) return builder_.CreateExtractElement(vector, static_cast<uint64_t>(first));
    return resized(vector, e.dtype.lanes, static_cast<int>(first));
  }
  if (e.intrinsic == Intrinsic::lane_concat) {
    llvm::Value* result = llvm::PoisonValue::get(type_of(e.dtype));
    uint64_t lane = 0;
    for (const Expr& part : arguments) {
      llvm::Value* value = emit(part);
      for (int i = 0; i < part.dtype().lanes; ++i) {
        llvm::Value* element = part.dtype().is_vector() ? builder_.CreateExtractElement(value, uint64_t(i)) : value;
        result = builder_.CreateInsertElement(result, element, lane++);
      }
    }
    return result;
  }
  std::vector<llvm::Value*> v;
  for (const Expr& argument : arguments) v.push_back(emit(argument));
  const DType dtype = arguments.empty() ? e.dtype : arguments[0].dtype();
  const bool is_float = dtype.is_float();
  if (e.intrinsic == Intrinsic::reinterpret) return builder_.CreateBitCast(v[0], type_of(e.dtype));
  check(!is_sixteen_bit_float(dtype), "codegen: legalize_types has run");
  switch (e.intrinsic) {
    case Intrinsic::sqrt:
      return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, v[0]);
    case Intrinsic::rsqrt:
      return builder_.CreateFDiv(llvm::ConstantFP::get(v[0]->getType(), 1.0),
                                 builder_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, v[0]));
    case Intrinsic::floor:
    case Intrinsic::ceil:
    case Intrinsic::trunc:
    case Intrinsic::round_even:
      return is_float ? emit_round(e.intrinsic, v[0]) : v[0];
    case Intrinsic::abs:
      if (is_float) return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v[0]);
      if (dtype.is_unsigned_integer()) return v[0];
      return builder_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, v[0], builder_.getFalse());
    case Intrinsic::sign: {
      llvm::Value* zero = llvm::Constant::getNullValue(v[0]->getType());
      if (is_float) {
        llvm::Value* one = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign,
                                                          llvm::ConstantFP::get(v[0]->getType(), 1.0), v[0]);
        return builder_.CreateSelect(builder_.CreateFCmpONE(v[0], zero), one, v[0]);  // zero and NaN stay
      }
      llvm::Value* positive = builder_.CreateZExt(
          dtype.is_unsigned_integer() ? builder_.CreateICmpNE(v[0], zero) : builder_.CreateICmpSGT(v[0], zero),
          v[0]->getType());
      if (dtype.is_unsigned_integer()) return positive;
      return builder_.CreateSub(positive, builder_.CreateZExt(builder_.CreateICmpSLT(v[0], zero), v[0]->getType()));
    }
    case Intrinsic::scale_by_power:
      if (!target_.has_power_scaling)
        refuse(make_expr<Call>(e), target_.name + " has no instruction that scales by powers");
      return emit_scale_by_power(v[0], v[1]);
    case Intrinsic::copysign:
      return builder_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, v[0], v[1]);
    case Intrinsic::fma:
      if (!target_.has_fma) {
        // A multiplication whose rounding the program must not see: f32 goes through f64, which holds the product
        // whole.
        if (dtype.element() != f32)
          refuse(make_expr<Call>(e), target_.name + " has no fused multiply-add of this type");
        auto* wide = type_of(f64.with_lanes(dtype.lanes));
        llvm::Value* product = builder_.CreateFMul(builder_.CreateFPExt(v[0], wide), builder_.CreateFPExt(v[1], wide));
        return builder_.CreateFPTrunc(builder_.CreateFAdd(product, builder_.CreateFPExt(v[2], wide)), v[0]->getType());
      }
      return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {v[0]->getType()}, {v[0], v[1], v[2]});
    case Intrinsic::minimum:
    case Intrinsic::maximum:
      if (!is_float) return emit_min_max(e.intrinsic == Intrinsic::minimum, dtype, v[0], v[1], true, true);
      if (is_number(arguments[0])) std::swap(v[0], v[1]);
      return emit_min_max_propagating(e.intrinsic == Intrinsic::minimum, dtype, v[0], v[1],
                                      is_number(arguments[0]) || is_number(arguments[1]));
    case Intrinsic::is_nan:
      return builder_.CreateFCmpUNO(v[0], v[0]);
    case Intrinsic::is_inf:
      return builder_.CreateFCmpOEQ(builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v[0]),
                                    llvm::ConstantFP::getInfinity(v[0]->getType()));
    case Intrinsic::popcount:
      return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, v[0]);
    default:
      refuse(make_expr<Call>(e), "no code for this function of " + to_string(dtype) + " on " + target_.name);
  }
}

llvm::Value* KernelCodegen::emit_round(Intrinsic intrinsic, llvm::Value* x) {
  if (target_.architecture != "arm") {
    const auto id = intrinsic == Intrinsic::floor   ? llvm::Intrinsic::floor
                    : intrinsic == Intrinsic::ceil  ? llvm::Intrinsic::ceil
                    : intrinsic == Intrinsic::trunc ? llvm::Intrinsic::trunc
                                                    : llvm::Intrinsic::roundeven;
    return builder_.CreateUnaryIntrinsic(id, x);
  }
  // ARMv7 has no rounding instructions.  Values of 2^23 (f64: 2^52) and more are integers; below, adding and taking
  // away that power rounds to even.
  auto* type = x->getType();
  const double power = type->getScalarType()->isFloatTy() ? 8388608.0 : 4503599627370496.0;
  llvm::Value* limit = llvm::ConstantFP::get(type, power);
  llvm::Value* magnitude = builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  llvm::Value* rounded = builder_.CreateFSub(builder_.CreateFAdd(magnitude, limit), limit);
  llvm::Value* zero = llvm::ConstantFP::get(type, 0.0);
  llvm::Value* one = llvm::ConstantFP::get(type, 1.0);
  if (intrinsic == Intrinsic::trunc) {
    llvm::Value* excess = builder_.CreateSelect(builder_.CreateFCmpOGT(rounded, magnitude), one, zero);
    rounded = builder_.CreateFSub(rounded, excess);
  }
  rounded = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, rounded, x);
  if (intrinsic == Intrinsic::floor) {
    llvm::Value* excess = builder_.CreateSelect(builder_.CreateFCmpOGT(rounded, x), one, zero);
    rounded = builder_.CreateFSub(rounded, excess);
  } else if (intrinsic == Intrinsic::ceil) {
    llvm::Value* lack = builder_.CreateSelect(builder_.CreateFCmpOLT(rounded, x), one, zero);
    rounded = builder_.CreateFAdd(rounded, lack);
  }
  rounded = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, rounded, x);  // -0 stays -0
  return builder_.CreateSelect(builder_.CreateFCmpOLT(magnitude, limit), rounded, x);
}

// Halves meet until one lane is left: ⌈log₂ lanes⌉ steps.
llvm::Value* KernelCodegen::emit_vector_reduce(const VectorReduce& e) {
  llvm::Value* vector = emit(e.value);
  int lanes = e.value.dtype().lanes;
  if (lanes == 1) return vector;
  if (e.dtype.is_bool())
    return e.op == BinaryOp::logical_and ? builder_.CreateAndReduce(vector) : builder_.CreateOrReduce(vector);
  const DType element = e.value.dtype().element();
  check(!is_sixteen_bit_float(element), "codegen: legalize_types has run");
  llvm::Value* odd = nullptr;
  while (lanes > 1) {
    const int half = lanes / 2;
    if (lanes % 2) {
      llvm::Value* last = builder_.CreateExtractElement(vector, uint64_t(lanes - 1));
      odd = odd ? emit_operation(e.op, element, odd, last, false, false) : last;
    }
    llvm::Value* low = resized(vector, half);
    vector = emit_operation(e.op, element.with_lanes(half), low, resized(vector, half, half), false, false);
    lanes = half;
  }
  llvm::Value* result = builder_.CreateExtractElement(vector, uint64_t(0));
  return odd ? emit_operation(e.op, element, result, odd, false, false) : result;
}

}  // namespace tw
