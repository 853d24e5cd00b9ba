// How operators of ONNX become nodes of ours: a rule an operator, in the file of rules/ that is named for its family
// (rules.def).  A use of an operator that its rule does not cover is refused, never approximated.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "frontends/emit.h"
#include "frontends/onnx/context.h"

namespace tw::frontends::onnx {

// What an operator does with strings.
enum class TextUse {
  none,    // the node is refused
  moved,   // its first input may be, and its result is then, as it moves elements
  joined,  // the same of all of its inputs together
  read,    // the rule sees to it
};

struct Rule {
  std::string op_type;
  std::string domain;                                    // "": the standard one
  int since_opset = 1;                                   // the rule covers this opset and later ones, up to a later row
  std::function<std::vector<ValueId>(Context&)> import;  // one value an output (no_value where not wanted)
  TextUse text = TextUse::none;
};

// Null: none covers it.
const Rule* find_rule(std::string_view domain, std::string_view op_type, int opset);
std::vector<const Rule*> all_rules();

// For the files of rules/.
inline const std::string microsoft = "com.microsoft";
using Ints = std::vector<int64_t>;

// A rule with one result.
Rule rule(const std::string& op_type, int since_opset, std::function<ValueId(Context&)> import);
Rule with_text(Rule rule, TextUse text);
Rule rule_of(const std::string& domain, const std::string& op_type, std::function<ValueId(Context&)> import);
// axes as input `input` (newer opsets) or as attribute: empty when absent.
Ints axes_of(const Context& c, size_t input);
// As Cast does it: what is beyond the largest number of a float of 8 bits becomes that number, or, by the attribute
// `saturate`, infinity or NaN; powers of two are rounded by `round_mode`.
ValueId emit_onnx_cast(Context& c, ValueId x, DType to);
// …of codes of at most 8 bits: products may want those of weights, so a known matrix stays a node.
ValueId emit_cast_of_codes(Context& c, ValueId x, DType to);
// The attribute `axes`: all of x when it is absent.
std::vector<int> chosen_axes(const Context& c, ValueId x);

// Indices into axes of these extents are from -extent to extent - 1: the run ends where one is not, or the import where
// they are known.  Of several extents, the last axis of the indices says which is for what.  Nothing is checked within
// branches and loops, nor where a run computes how many indices there are or what they are for: those mostly come from
// what found them (NonZero, TopK).  Operators take the nearest index there, as behind one that is wrong.
void emit_index_check(Context& c, ValueId indices, const std::vector<Expr>& extents);

// Of GatherND and ScatterND: of the axes of x behind `batch` that each index is for; none where it is not known how
// many.
std::vector<Expr> indexed_extents(Context& c, ValueId x, ValueId indices, int64_t batch = 0);

}  // namespace tw::frontends::onnx
