// Where each kept route's row lies among this rank's rows, sorted by expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::moe {

/// Kept routes in the order (expert, queue position), without gaps: no row is ever padding.
struct DispatchPlan {
  std::vector<std::int64_t> counts;  ///< [E] kept routes per expert
  std::vector<std::int32_t> slot;    ///< [S · k] row of each route, −1 = dropped or padding
  std::vector<std::int32_t> token;   ///< [rows] token of each row
};

/// The plan for routes [S · k] with experts `choice` and queue positions `position` (−1 = not kept;
/// the kept ones of an expert are 0, 1, 2, …, which is checked).
DispatchPlan make_dispatch_plan(std::span<const std::int32_t> choice,
                                std::span<const std::int32_t> position, int experts, int top_k);

/// Rows as they arrive, sorted by (source rank, expert), and as experts want them, sorted by
/// (expert, source rank).
struct ArrivalPlan {
  std::vector<std::int64_t> expert_rows;  ///< rows per local expert, from all sources
  std::vector<std::int32_t> arrange;      ///< [rows] expert order → place in arrival order
  std::vector<std::int32_t> restore;      ///< [rows] arrival order → place in expert order
};

/// `counts` [sources · local experts]: rows from each source for each local expert.
ArrivalPlan make_arrival_plan(std::span<const std::int64_t> counts, int sources, int local_experts);

}  // namespace tessera::moe
