// Cores of every width that schedules are made for.
#pragma once

#include "targets/target.h"
#include "tests/unit/sanitized.h"

namespace tw::test {

inline Target core(int vector_bits, int registers) {
  Target target;
  target.name = "core of " + std::to_string(vector_bits) + " bits";
  target.vector_bits = vector_bits;
  target.vector_registers = registers;
  target.has_masks = vector_bits == 512;
  target.has_fma = true;
  target.threads = 2;
  // Schedules ask what there is, not how it is emitted.
  for (const Intrinsic i : {Intrinsic::dot_bf16, Intrinsic::dot_u8s8, Intrinsic::dot_s8s8})
    target.instructions.push_back({i, {vector_bits / 32}, nullptr});
  return target;
}

inline Target core_with_tiles() {
  Target target = core(512, 32);
  target.name += " and tiles";
  target.tiles.registers = 8, target.tiles.rows = 16, target.tiles.row_bytes = 64;
  target.tiles.product_latency = 36, target.tiles.load_cycles = 8;
  target.tiles.products = {Intrinsic::tile_dot_bf16, Intrinsic::tile_dot_u8s8, Intrinsic::tile_dot_s8s8};
  return target;
}

inline Target core_with_matrices() {
  Target target = core(128, 32);
  target.name += " and matrices";
  for (const Intrinsic i : {Intrinsic::matrix_u8s8, Intrinsic::matrix_s8s8})
    target.instructions.push_back({i, {4}, nullptr});
  return target;
}

inline std::vector<Target> cores_without_tiles() {
  if (is_sanitized) return {core(512, 32)};
  return {core(128, 16), core(128, 32), core(256, 16), core(512, 32)};
}

inline std::vector<Target> cores() {
  if (is_sanitized) return {core_with_tiles()};
  std::vector<Target> all = cores_without_tiles();
  all.push_back(core_with_matrices());
  all.push_back(core_with_tiles());
  return all;
}

}  // namespace tw::test
