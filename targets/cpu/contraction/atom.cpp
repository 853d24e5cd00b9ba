#include "targets/cpu/contraction/atom.h"

#include "tensor_ir/text/printer.h"
#include "tensor_ir/type_rules.h"

namespace tw::cpu {
namespace {

bool takes(const TensorInstruction& instruction, DType a, DType b, DType sum) {
  const auto& operands = instruction.description.buffers;
  return operands[0]->dtype == a && operands[1]->dtype == b && operands[2]->dtype == sum;
}

}  // namespace

std::optional<Atom> dot_of(DType a, DType b, DType sum, const Target& target) {
  for (const MachineInstruction& machine : target.instructions) {
    if (kind_of(machine.intrinsic) != IntrinsicKind::dot) continue;
    const TensorInstruction& dot = *find_tensor_instruction(to_text(machine.intrinsic));
    // Floats multiply as f32, too: then a slow instruction gains nothing.
    if (sum.is_float() && machine.cycles > static_cast<double>(dot.extent)) continue;
    if (takes(dot, a, b, sum) || takes(dot, b, a, sum)) return Atom{&dot, 1, target.lanes(sum), {dot.extent}};
  }
  return std::nullopt;
}

std::optional<Atom> matrix_product_of(DType a, DType b, DType sum, const Target& target) {
  for (const MachineInstruction& machine : target.instructions) {
    if (kind_of(machine.intrinsic) != IntrinsicKind::matrix) continue;
    const TensorInstruction& product = *find_tensor_instruction(to_text(machine.intrinsic));
    if (takes(product, a, b, sum)) return Atom{&product, matrix_sizes.m, matrix_sizes.n, {product.extent}};
  }
  return std::nullopt;
}

std::optional<Atom> tile_product_of(DType a, DType b, DType sum, const Target& target) {
  const TileUnit& unit = target.tiles;
  for (const Intrinsic intrinsic : unit.products) {
    const TensorInstruction& product = *find_tensor_instruction(to_text(intrinsic));
    if (takes(product, a, b, sum)) return Atom{&product, unit.rows, unit.row_bytes / 4, {unit.rows, product.extent}};
  }
  return std::nullopt;
}

}  // namespace tw::cpu
