#include "tensor_ir/dimension.h"

namespace tw {
namespace {

struct DimensionNode : VarNode {
  DimensionBounds bounds;
  std::string demanded_by;
  std::optional<int64_t> typical;
  DimensionNode(std::string name, DimensionBounds bounds, std::string demanded_by, std::optional<int64_t> typical)
      : VarNode(i64, std::move(name)), bounds(bounds), demanded_by(std::move(demanded_by)), typical(typical) {}
};

}  // namespace

Var dimension(std::string name, DimensionBounds bounds, std::string demanded_by, std::optional<int64_t> typical) {
  return Var::of(Expr(std::make_shared<DimensionNode>(std::move(name), bounds, std::move(demanded_by), typical)));
}

std::optional<int64_t> typical_size(const ExprNode& var) {
  const auto* dimension = dynamic_cast<const DimensionNode*>(&var);
  return dimension ? dimension->typical : std::nullopt;
}

const std::string& bounds_demanded_by(const Var& var) {
  static const std::string nobody;
  const auto* dimension = dynamic_cast<const DimensionNode*>(var.get());
  return dimension ? dimension->demanded_by : nobody;
}

DimensionBounds dimension_bounds(const ExprNode& var) {
  const auto* dimension = dynamic_cast<const DimensionNode*>(&var);
  return dimension ? dimension->bounds : DimensionBounds{};
}

}  // namespace tw
