// Copies of whole tiles to shared memory, which a unit of the GPU makes when one thread asks for them (Hopper's tensor
// memory accelerator: "cp.async.bulk.tensor" in the PTX ISA).  It knows the tensor by a map that the launch gives,
// finds boxes of it by their coordinates, puts zeros where the tensor ends, and exchanges pieces as swizzles have it
// (fragments.h).
#pragma once

#include <unordered_map>
#include <vector>

#include "targets/backend.h"

namespace tw::cuda {

// Boxes that make up a tile.
struct TileCopy {
  Buffer from, to;
  size_t map = 0;                 // its number in TileCopies::maps
  Expr place;                     // of the first element in `to`
  std::vector<Expr> coordinates;  // of the first box, innermost first
  // Those of the next boxes: so many, so far apart along one coordinate and in shared memory, in elements.
  int64_t boxes = 1, step = 0, elements_of_box = 0;
  size_t along = 0;
};

struct TileCopies {
  std::vector<TensorMapOfBuffer> maps;
  std::unordered_map<const StmtNode*, TileCopy> copies;  // by Store
  int64_t groups = 0;                                    // of copies, that are on their way at a time
  // Where a warp of its own asks for them (copying_warp in pipeline.h), behind those that compute: how many groups have
  // places of their own.  0: nowhere.  Threads meet nowhere then: the warps count what has come and what is used.
  int64_t versions = 0;
};

// Of a lowered kernel's body.  Error(lower): a tile is no box of its tensor.
TileCopies find_tile_copies(const Func& kernel);

// Whether threads store something in shared memory themselves.
bool stores_in_shared(const Stmt& body, const TileCopies& tiles);

}  // namespace tw::cuda
