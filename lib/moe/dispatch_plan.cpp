#include "moe/dispatch_plan.hpp"

#include <limits>
#include <numeric>

#include "base/check.hpp"

namespace tessera::moe {
namespace {

// Exclusive prefix sums, with the total at the end. Row numbers are int32 on the device.
std::vector<std::int64_t> starts_of(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> starts(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), starts.begin() + 1);
  TESSERA_CHECK(starts.back() <= std::numeric_limits<std::int32_t>::max(),
                "{} rows on one rank are too many", starts.back());
  return starts;
}

}  // namespace

DispatchPlan make_dispatch_plan(std::span<const std::int32_t> choice,
                                std::span<const std::int32_t> position, int experts, int top_k) {
  DispatchPlan plan;
  plan.counts.assign(static_cast<std::size_t>(experts), 0);
  for (std::size_t route = 0; route < choice.size(); ++route) {
    if (position[route] < 0) continue;
    TESSERA_CHECK(choice[route] >= 0 && choice[route] < experts, "route to expert {} of {}",
                  choice[route], experts);
    ++plan.counts[static_cast<std::size_t>(choice[route])];
  }

  const std::vector<std::int64_t> starts = starts_of(plan.counts);
  plan.slot.assign(choice.size(), -1);
  plan.token.assign(static_cast<std::size_t>(starts.back()), -1);
  for (std::size_t route = 0; route < choice.size(); ++route) {
    if (position[route] < 0) continue;
    const auto expert = static_cast<std::size_t>(choice[route]);
    TESSERA_CHECK(position[route] < plan.counts[expert], "position {} of {} routes to expert {}",
                  position[route], plan.counts[expert], expert);
    const auto row = static_cast<std::size_t>(starts[expert] + position[route]);
    TESSERA_CHECK(plan.token[row] < 0, "two routes at position {} of expert {}", position[route],
                  expert);
    plan.slot[route] = static_cast<std::int32_t>(row);
    plan.token[row] = static_cast<std::int32_t>(route / static_cast<std::size_t>(top_k));
  }
  return plan;
}

ArrivalPlan make_arrival_plan(std::span<const std::int64_t> counts, int sources,
                              int local_experts) {
  const std::vector<std::int64_t> arrival_starts = starts_of(counts);
  ArrivalPlan plan;
  plan.arrange.resize(static_cast<std::size_t>(arrival_starts.back()));
  plan.restore.resize(plan.arrange.size());
  std::size_t next = 0;
  for (int expert = 0; expert < local_experts; ++expert) {
    const std::size_t first = next;
    for (int source = 0; source < sources; ++source) {
      const auto part = static_cast<std::size_t>(source * local_experts + expert);
      for (std::int64_t row = arrival_starts[part]; row < arrival_starts[part + 1]; ++row) {
        plan.arrange[next] = static_cast<std::int32_t>(row);
        plan.restore[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(next);
        ++next;
      }
    }
    plan.expert_rows.push_back(static_cast<std::int64_t>(next - first));
  }
  return plan;
}

}  // namespace tessera::moe
