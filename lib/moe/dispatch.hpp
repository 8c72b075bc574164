// Tape entries around the experts: rows out to them, results back.
#pragma once

#include <tessera/autograd.hpp>

#include <memory>

#include "moe/dispatch_plan.hpp"
#include "moe/exchange.hpp"

namespace tessera::moe {

/// How the rows of one forward pass travel. Shared by dispatch, combine and their backward.
struct Journey {
  Tensor slot;   ///< int32 [S, k] row of each route among the rows sorted by expert, −1 = none
  Tensor token;  ///< int32 [rows] token of each such row
  ExpertExchange exchange;
};

/// Rows of x [.., hidden] at their experts: [rows there, hidden], sorted by (expert, source rank,
/// queue position).
Variable dispatch(const Variable& x, const std::shared_ptr<const Journey>& journey);

/// Σ_j weight[s, j] · (the expert's row of route j), in FP32 and rounded once, in `shape`. Tokens
/// without a route get zeros.
Variable combine(const Variable& rows, const Variable& weight, const Shape& shape,
                 const std::shared_ptr<const Journey>& journey);

}  // namespace tessera::moe
