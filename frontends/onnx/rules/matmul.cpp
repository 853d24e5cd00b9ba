// Matrix products.
#include <algorithm>
#include <map>

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

ValueId matmul(Context& c, ValueId a, ValueId b, bool transpose_a = false, bool transpose_b = false) {
  return c.emit("matmul", {a, b},
                attributes_of({{"transpose_a", int64_t{transpose_a}}, {"transpose_b", int64_t{transpose_b}}}));
}

ValueId scaled(Context& c, ValueId x, double factor) {
  return factor == 1 ? x : c.emit("multiply", {x, emit_scalar(c, dtype_of(c, x), factor)});
}

ValueId import_gemm(Context& c) {
  ValueId a = c.input(0), b = c.input(1);
  if (rank_of(c, a) != 2 || rank_of(c, b) != 2) c.refuse("inputs that are no matrices");
  const ValueId product = matmul(c, a, b, c.attribute_int("transA", 0) != 0, c.attribute_int("transB", 0) != 0);
  ValueId result = scaled(c, product, c.attribute_float("alpha", 1));
  if (c.has_input(2)) result = c.emit("add", {result, scaled(c, c.input(2), c.attribute_float("beta", 1))});
  return result;
}

ValueId import_einsum(Context& c) {
  std::string text;
  for (const char letter : c.attribute_string("equation", "")) {
    if (letter != ' ') text += letter;
  }
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < c.input_count(); ++i) inputs.push_back(c.input(i));
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow), right = arrow == std::string::npos ? "" : text.substr(arrow + 2);
  for (const char letter : left + right) {
    if (!std::isalpha(static_cast<unsigned char>(letter)) && letter != '.' && letter != ',') {
      c.refuse("equation \"" + text + "\"");
    }
  }
  // Digits stand for the dimensions of an ellipsis, counted from the last.
  std::vector<std::string> terms(1);
  for (const char letter : left) {
    if (letter == ',')
      terms.emplace_back();
    else
      terms.back() += letter;
  }
  if (terms.size() != inputs.size())
    c.refuse("equation \"" + text + "\" with " + std::to_string(inputs.size()) + " inputs");
  int ellipsis = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const size_t dots = terms[i].find("...");
    if (dots == std::string::npos) continue;
    const int extra = rank_of(c, inputs[i]) - static_cast<int>(terms[i].size() - 3);
    if (extra < 0 || extra > 10) c.refuse("equation \"" + text + "\"");
    ellipsis = std::max(ellipsis, extra);
    std::string digits;
    for (int k = extra - 1; k >= 0; --k) digits += static_cast<char>('0' + k);
    terms[i].replace(dots, 3, digits);
  }
  std::string all_digits;
  for (int k = ellipsis - 1; k >= 0; --k) all_digits += static_cast<char>('0' + k);
  if (arrow == std::string::npos) {  // implicit output: the ellipsis, then letters that occur once, in order
    std::map<char, int> counts;
    for (const std::string& term : terms) {
      for (const char letter : term) ++counts[letter];
    }
    right = all_digits;
    for (const auto& [letter, count] : counts) {
      if (count == 1 && std::isalpha(static_cast<unsigned char>(letter))) right += letter;
    }
  } else if (const size_t dots = right.find("..."); dots != std::string::npos) {
    right.replace(dots, 3, all_digits);
  }
  left.clear();
  for (const std::string& term : terms) left += (left.empty() ? "" : ",") + term;
  if (terms.size() > 1 && terms[0].empty()) left = "," + left;
  if ((left + right).find('.') != std::string::npos) c.refuse("equation \"" + text + "\"");
  return c.emit("einsum", inputs, attributes_of({{"equation", left + "->" + right}}));
}

}  // namespace

std::vector<Rule> matmul_rules() {
  return {
      rule("Det", 11, [](Context& c) { return c.emit("determinant", {c.input(0)}); }),
      rule("MatMul", 1, [](Context& c) { return emit_matmul(c, c.input(0), c.input(1)); }),
      rule("Gemm", 1, import_gemm),
      rule("Einsum", 12, import_einsum),
      rule_of(microsoft, "FusedMatMul",
              [](Context& c) {
                if (c.attribute_int("transBatchA", 0) || c.attribute_int("transBatchB", 0)) {
                  c.refuse("transBatchA or transBatchB");
                }
                if (rank_of(c, c.input(0)) < 2 || rank_of(c, c.input(1)) < 2) c.refuse("vectors");
                const ValueId product = matmul(c, c.input(0), c.input(1), c.attribute_int("transA", 0) != 0,
                                               c.attribute_int("transB", 0) != 0);
                return scaled(c, product, c.attribute_float("alpha", 1));
              }),
  };
}

}  // namespace tw::frontends::onnx
