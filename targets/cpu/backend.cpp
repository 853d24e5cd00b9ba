#include "targets/cpu/backend.h"

#include "targets/llvm/compile_image.h"

namespace tw::cpu {

const Backend& backend() {
  static const Backend cpus = {
      .graph_passes = {"move_codes", "multiply_quantised", "tabulate", "split_phases", "choose_winograd",
                       "fuse_expansions", "choose_strassen", "split_kv", "widen_at_loads", "transpose_images", "assign_layout"},
      .lowering =
          {
              // What the blocks stand for: loops, guards and inits.
              "lower_blocks",
              // Tiles in registers and buffers of one worker get their own small shapes; guards still stand at the
              // blocks they were given to.
              "compact_buffers",
              // What is staged for one iteration has its small shape now.
              "pipeline_loops",
              // Flat indices let the simplifier see offsets of one buffer in one sum: (f // 39) * 39 + f % 39 is f,
              // also where f runs over the end.
              "flatten_buffers",
              // Ranges of loops resolve most guards and the divisions that splits and layouts leave behind.
              "simplify_all",
              // What a tile asks for ahead follows from its number among all tiles, while they are one loop.
              "prefetch_pieces",
              // Rows that are there or not as a whole.
              "hoist_guards",
              // Tails of tiles apart from whole tiles, while loops still tell what a tile is.
              "partition_loops",
              // While an instruction's loops are all there is of it; its operands become vectors with the loops around
              // it.
              "tensorize_loops",
              // Vectors before copies: one statement is vectorized where unrolling would make dozens.  Both leave
              // constant conditions and indices, which make register buffers possible, so what they leave is simplified
              // once more.
              "vectorize_loops",
              "unroll_loops",
              "simplify_all",
              "spill_registers",
              "drop_register_masks",
              // Loads are vectors now, and each line of memory is asked for once.
              "insert_prefetches",
              // 16-bit floats compute in f32.
              "legalize_types",
              // Their polynomials are products and sums too.
              "expand_math",
              // After all copies: products and sums that belong together now stand together.
              "contract_fma",
          },
      .compile_image = compile_llvm_image,
  };
  return cpus;
}

}  // namespace tw::cpu
