#include "tensor_ir/dimension.h"

namespace tw {
namespace {

struct DimensionNode : VarNode {
  DimensionBounds bounds;
  DimensionNode(std::string name, DimensionBounds bounds) : VarNode(i64, std::move(name)), bounds(bounds) {}
};

}  // namespace

Var dimension(std::string name, DimensionBounds bounds) {
  return Var::of(Expr(std::make_shared<DimensionNode>(std::move(name), bounds)));
}

DimensionBounds dimension_bounds(const ExprNode& var) {
  const auto* dimension = dynamic_cast<const DimensionNode*>(&var);
  return dimension ? dimension->bounds : DimensionBounds{};
}

}  // namespace tw
