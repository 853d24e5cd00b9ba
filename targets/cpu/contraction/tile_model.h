// The register tile of a contraction, from the core's facts.
//
// A tile keeps rows × vectors accumulators in registers; each step along k loads `vectors` vectors of one operand,
// broadcasts `rows` scalars of the other and issues rows · vectors multiply-adds.  (The model of the BLIS micro-kernel:
// Low et al., "Analytical Modeling Is Enough for High-Performance BLIS", ACM TOMS 43, 2016.)
#pragma once

#include <cstdint>
#include <vector>

#include "targets/target.h"

namespace tw::cpu {

struct RegisterTile {
  int rows = 1;
  int vectors = 1;
  int around = 1;  // so many times these rows: of neighbours along another axis
};

// Cycles of one core for m × (n vectors) × k with this tile, compute only; partial tiles at the edge of m cost what
// they do.
double predict_cycles(const RegisterTile& tile, int64_t m, int64_t n_vectors, int64_t k, const Target& target);

// What surrounds the m × n × k of one product.
struct Sweep {
  int64_t outer_rows = 1;       // so many times m rows meet each panel of B
  int64_t scattered_bytes = 0;  // of A, where each row is contiguous along k; 0: rows lie side by side
  int64_t row_stride = 0;       // bytes from one row of A to the next; 0: not known
  bool packs_panels = false;    // of B, which is no weight, while the kernel runs
  int64_t swept_bytes = 0;      // that come between two uses of a panel; 0: its own, it serves all tiles first
};

// Cycles of a step along k in which the core waits for lines of A that do not stay in the first cache until all of a
// line's elements are used: lines of rows that lie some power of two apart share few of its sets.
double conflict_cycles(const RegisterTile& tile, int64_t row_stride, const Target& target);

// Cycles beyond these in which the core waits for its caches: a panel of B comes again for each row of tiles, A for
// each panel, lines that are in each other's way, and what is packed once.
double predict_traffic(const RegisterTile& tile, int64_t m, int64_t n_vectors, int64_t k, const Sweep& sweep,
                       const Target& target);

// Vector registers that it takes.
int registers_of(const RegisterTile& tile);
// Whether the registers hold it.
bool fits_registers(const RegisterTile& tile, const Target& target);
// Every tile that the registers hold, for m rows and n vectors.
std::vector<RegisterTile> tiles_that_fit(int64_t m, int64_t n_vectors, const Target& target);

// What tiles are compared by: their predicted cycles, and a little for what these leave out.
double tile_cost(const RegisterTile& tile, int64_t m, int64_t n_vectors, int64_t k, const Target& target,
                 const Sweep& sweep = {});

// The tile with the least cost.
RegisterTile choose_tile(int64_t m, int64_t n_vectors, int64_t k, const Target& target, const Sweep& sweep = {});

// The tile of a stream from memory, which leaves the arithmetic time: narrower where that makes more panels to share
// out, so that no worker waits long for another's last one.
RegisterTile panels_for_all(RegisterTile tile, int64_t n_vectors, int64_t batches, const Target& target);

}  // namespace tw::cpu
