#include "moe/dispatch_plan.hpp"

#include <tessera/error.hpp>

#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

using namespace tessera;
using namespace tessera::moe;
using Numbers = std::vector<std::int32_t>;

TEST_CASE("Kept routes are rows sorted by expert and queue position") {
  // Tokens 0 to 3, two choices each; token 1's second choice was dropped, token 2 is padding.
  const Numbers choice{2, 0, 0, 2, -1, -1, 2, 0};
  const Numbers position{0, 1, 0, -1, -1, -1, 1, 2};
  const DispatchPlan plan = make_dispatch_plan(choice, position, 4, 2);
  CHECK(plan.counts == std::vector<std::int64_t>{3, 0, 2, 0});
  CHECK(plan.token == Numbers{1, 0, 3, 0, 3});
  CHECK(plan.slot == Numbers{3, 1, 0, -1, -1, -1, 4, 2});
}

TEST_CASE("A plan without tokens has no rows") {
  const DispatchPlan plan = make_dispatch_plan({}, {}, 3, 2);
  CHECK(plan.counts == std::vector<std::int64_t>{0, 0, 0});
  CHECK(plan.token.empty());
}

TEST_CASE("A plan refuses queue positions that leave gaps or meet") {
  CHECK_THROWS_AS(make_dispatch_plan(Numbers{0, 0}, Numbers{0, 2}, 1, 1), Error);
  CHECK_THROWS_AS(make_dispatch_plan(Numbers{0, 0}, Numbers{0, 0}, 1, 1), Error);
  CHECK_THROWS_AS(make_dispatch_plan(Numbers{4}, Numbers{0}, 4, 1), Error);
}

TEST_CASE("Arrived rows are put in the order of experts") {
  // Source 0 sends 2 rows for expert 0 and 1 for expert 1, source 1 none and 2, source 2 nothing.
  const std::vector<std::int64_t> counts{2, 1, 0, 2, 0, 0};
  const ArrivalPlan plan = make_arrival_plan(counts, 3, 2);
  CHECK(plan.expert_rows == std::vector<std::int64_t>{2, 3});
  CHECK(plan.arrange == Numbers{0, 1, 2, 3, 4});

  const ArrivalPlan crossed = make_arrival_plan(std::vector<std::int64_t>{1, 2, 2, 1}, 2, 2);
  CHECK(crossed.expert_rows == std::vector<std::int64_t>{3, 3});
  CHECK(crossed.arrange == Numbers{0, 3, 4, 1, 2, 5});
  for (std::size_t i = 0; i < crossed.arrange.size(); ++i) {
    CHECK(crossed.restore[static_cast<std::size_t>(crossed.arrange[i])] ==
          static_cast<std::int32_t>(i));
  }
}
