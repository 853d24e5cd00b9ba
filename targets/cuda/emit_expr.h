// Expressions as CUDA C++ text, with the names and what is known of them; see emit.cpp for how vectors are handled.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/ir.h"

namespace tw::cuda {

std::string value_type(DType dtype);   // of one lane in a variable: f16 and bf16 are float, bool is bool
std::string memory_type(DType dtype);  // of one element in memory

class ExprEmitter {
 public:
  explicit ExprEmitter(std::string kernel) : kernel_name_(std::move(kernel)) {}
  virtual ~ExprEmitter() = default;

 protected:
  [[noreturn]] void fail(const std::string& what, const std::string& help = "") const;
  void line(const std::string& text);  // at the current depth

  std::string fresh(const std::string& name);  // a C++ name that nothing else has
  std::string declare(const Var& var);
  std::string declare(const Buffer& buffer);
  const std::string& name_of(const Buffer& buffer) const { return names_.at(buffer.get()); }  // as it was declared
  // Of a loop that counts from 0 up to the extent; the type of a C++ variable that holds it: i32 where that is enough.
  std::string declare_counter(const Var& var, const Expr& extent);
  std::string counter_type(const Var& var) const;
  void assume_size(const Var& var);       // of a parameter: what its bounds say, and not negative
  void narrow_parameter(const Var& var);  // where these let it be i32

  // The text of lane `lane` (of a scalar: any).  `is_index`: of an index, which never wraps.
  std::string lane(const Expr& e, const std::string& lane, bool is_index = false);
  std::string scalar(const Expr& e, bool is_index = false) { return lane(e, "0", is_index); }
  std::string lane_in_memory(const Expr& e, const std::string& lane);  // as memory has it
  // A vector into an array of its own, before the current statement; the array's name.  `in_memory`: of elements as
  // memory has them.
  std::string materialise(const Expr& e, bool in_memory = false);
  // let var = value
  void bind(const Var& var, const Expr& value);

  // Where an element that an index names lies in the buffer's array.
  virtual std::string element_index(const Buffer& buffer, const Expr& index, const std::string& lane);
  // Whether so many bytes at one index may lie apart in the array.
  virtual bool is_scattered(const Buffer& buffer, int64_t bytes) const;
  std::string element_address(const Buffer& buffer, const std::vector<Expr>& indices, const std::string& lane);
  // The address of lane 0, when the lanes lie side by side and aligned for one access.
  std::optional<std::string> wide_address(const Buffer& buffer, const std::vector<Expr>& indices, int lanes);
  // A condition that holds for all lanes or for none, of them all.
  std::optional<Expr> condition_of_all_lanes(const Expr& condition) const;
  // 2, 4, 8 or a multiple of 16 bytes, in as few accesses as there can be.
  void copy_wide(const std::string& to, const std::string& from, int64_t bytes);
  // The statement for each `l` of first … lanes - 1.
  void each_lane(int first, int lanes, const std::string& statement);

  // Of i64: whether it and all that it is made of fit into i32.
  bool is_narrow(const Expr& e) const;
  int64_t multiple_of(const Expr& e) const;  // the value is a multiple of it; 0: it is zero

  std::string out_;
  int depth_ = 0;
  Assumptions ranges_;

 private:
  std::string binary(const Binary& n, const std::string& lane, bool is_index);
  std::string narrow(const Expr& e, const std::string& lane);  // its text in that type
  std::string call(const Call& n, const std::string& lane);
  std::string conversion(const Cast& n, const std::string& lane);
  std::string load(const Load& n, const std::string& lane, bool in_memory = false);
  std::string reduce(const VectorReduce& n);
  bool is_non_negative(const Expr& e) const;

  std::string kernel_name_;
  std::unordered_map<const void*, std::string> names_;
  std::unordered_map<std::string, int> counts_;
  std::unordered_set<const void*> vectors_;  // variables that are arrays
  std::unordered_set<const void*> narrow_;   // variables of i64 that are i32 in C++
  std::unordered_map<const void*, int64_t> multiples_;
};

}  // namespace tw::cuda
