// Fragments and the shared memory that tensor cores read.
//
// A fragment of m × n sums belongs to a warp of 4 threads along x and 8 along y; a thread holds, of each 16 × 8 sums,
// those of rows y and y + 8 and columns 2x and 2x + 1: the accumulator of mma.m16n8k16, and of m16n8k32 for bytes,
// which takes two where the former takes 16 bits, and of m16n8k8 for tf32, which takes half a one (PTX ISA, "Warp-level
// matrix instructions").  Its own elements are an array of the thread, which the compiler keeps in registers.  Two
// neighbours of 16 × 8 elements, of 16 bits each, are what the instruction takes as rows of its first operand: what is
// made of sums element by element can be multiplied without leaving the registers.  Where uses take eight columns at a
// time, they are 8x to 8x + 7 of each 32, one access of 16 bytes: then the instruction multiplies rows of the second
// operand in another order, in which they lie in shared memory: of each eight the first two, then of each eight the
// next two, and so on.
//
// A matrix that ldmatrix reads lies in shared memory with the 16-byte pieces of a row in another order in each row:
// piece p of row r at p ^ r, so that eight rows of one column come from eight different banks, and so do those of a
// transposed one.  Elements of 32 bits that lie across k are read one by one, by four threads along k and eight across:
// then pieces of 32 bytes are exchanged, p of row r at p ^ r, within 128 bytes, or at p ^ r / 2 where a thread takes
// neighbours along k, as it holds them of the first operand.  Products of groups of warps (wgmma) read pieces of rows
// of at most 128 bytes in that same order: of longer lines, blocks of 64 columns lie one after the other.  A square of
// 32 rows of 32 elements that threads along x walk down has element p of row r at p ^ r: the threads of a warp come
// from 32 banks both ways.  Everything that uses such a buffer asks for places here.
#pragma once

#include "targets/cuda/emit_expr.h"

namespace tw::cuda {

inline constexpr int64_t lanes_x = 4, lanes_y = 8;                 // threads of a warp
inline constexpr int64_t mma_m = 16, mma_n = 8, mma_k_bytes = 32;  // of one instruction
inline constexpr int64_t group_m = 64;                             // of one instruction of a group…
inline constexpr int64_t warps_of_group = group_m / mma_m;         // …of warps
inline constexpr int64_t piece_bytes = 16;                         // of one access to memory
inline constexpr int64_t bank_bytes = 128;                         // of shared memory's banks together

// Of a matrix in shared memory that is multiplied in another order of its rows, how many make up one
// order; nothing: they are multiplied as they lie.
std::optional<int64_t> turned_rows(const Stmt& body, const Buffer& matrix);

class FragmentEmitter : public ExprEmitter {
 protected:
  using ExprEmitter::ExprEmitter;

  // What a kernel multiplies, and the squares that it turns: before anything of it is emitted.
  void find_products(const Stmt& body);
  void find_squares(const Stmt& body, const Var& thread_x = {});
  bool has_products() const { return !fragments_.empty(); }
  static bool is_product(const Store& store);
  void multiply(const Store& product);
  void wait_for_products(int64_t left);
  bool is_of_group(const Buffer& fragment) const;
  // Boxes of a tensor are laid out in shared memory as the matrix's readers expect it (tile_copies.h).
  void require_box_order(const Buffer& matrix) const;
  // Elements of a fragment that are each thread's own.
  int64_t own_elements(const Buffer& fragment) const;
  // Neighbouring threads use neighbouring vectors of memory.
  bool are_neighbours(const Expr& vector) const;
  // The variable that numbers the threads of a warp along x or y, or warps along z, here.
  void enter(ThreadAxis axis, const Var& var);

  std::string element_index(const Buffer& buffer, const Expr& index, const std::string& lane) override;
  bool is_scattered(const Buffer& buffer, int64_t bytes) const override;

  std::vector<Buffer> sums_of_groups_;  // that are allocated here

 private:
  struct Shape {
    int64_t m, n;
    int64_t columns;   // side by side, that are a thread's own: a pair, or eight
    bool is_of_group;  // made while the threads go on
  };
  // Bits of an element's number: those from `from` on, as many as `mask` has, change those from `to` on.  Before that,
  // where they are not 0, 2^rows lines of 2^line elements become blocks of columns, and 2^turned_rows rows of 2^turned
  // elements get another order: first pairs of all eights, then the second ones, …
  struct Swizzle {
    int from, mask, to;
    int line = 0, rows = 0;
    int turned = 0, turned_rows = 0;
    std::string of(const std::string& index) const;
    int64_t period() const;  // elements
    bool operator==(const Swizzle&) const = default;
  };
  void find_swizzle(const Expr& operand, const Call& product, bool is_turned);
  void multiply_by_warp(const Store& product);
  void multiply_by_group(const Store& product);
  // What tw_matrix makes of an operand's rows, and how far apart its steps along k are in it.
  struct Matrix {
    std::string text;
    int64_t step;
  };
  Matrix matrix_of(const Load& operand, int64_t rows_of_warp);
  // Where the lane's row of the four 8 × 8 matrices begins that make up operand number `i` along its rows at step k.
  std::string row_address(const Load& operand, bool is_a);
  // The lane's element number `i` of an operand that is read one by one at step k.  `is_in_pairs`: its terms are
  // neighbours, as those of a fragment are.
  std::string element_at(const Load& operand, bool is_a, bool is_in_pairs);

  // Text that keeps uses of a fragment's sums on their side of what is written next.
  void hold(const Buffer& sums);

  std::unordered_map<Buffer, Shape> fragments_;
  std::unordered_map<Buffer, std::optional<Swizzle>> swizzles_;
  Var lane_x_, lane_y_, warp_;
};

}  // namespace tw::cuda
