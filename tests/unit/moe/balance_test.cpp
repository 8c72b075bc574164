#include "moe/balance.hpp"

#include <catch2/catch.hpp>

using namespace tessera::moe;

TEST_CASE("Perfectly balanced tokens have a balance loss of 1") {
  const BalanceSums sums{{2.0, 2.0, 2.0, 2.0}, {2.0, 2.0, 2.0, 2.0}, 8.0};
  CHECK(balance_loss(sums, 1).loss == Approx(1.0));
  CHECK(balance_loss(sums, 2).loss == Approx(1.0));
  // Three choices per token: each expert is chosen 6 times.
  const BalanceSums three{{2.0, 2.0, 2.0, 2.0}, {6.0, 6.0, 6.0, 6.0}, 8.0};
  CHECK(balance_loss(three, 3).loss == Approx(1.0));
}

TEST_CASE("All tokens to one expert, with certainty, have a balance loss of E") {
  const BalanceSums sums{{8.0, 0.0, 0.0, 0.0}, {8.0, 0.0, 0.0, 0.0}, 8.0};
  const Balance balance = balance_loss(sums, 2);
  CHECK(balance.loss == Approx(4.0));
  CHECK(balance.slope == std::vector<double>{4.0, 0.0, 0.0, 0.0});
}

TEST_CASE("Balance loss of four tokens and four experts by hand") {
  // mean p = (.4, .3, .2, .1), first choices 2, 1, 1, 0 of 4: 4 · (.4·.5 + .3·.25 + .2·.25).
  const BalanceSums sums{{1.6, 1.2, 0.8, 0.4}, {2.0, 1.0, 1.0, 0.0}, 4.0};
  const Balance balance = balance_loss(sums, 2);
  CHECK(balance.loss == Approx(1.3));
  CHECK(balance.slope == std::vector<double>{2.0, 1.0, 1.0, 0.0});
}

TEST_CASE("No tokens, no balance loss") {
  const Balance balance = balance_loss({{0.0, 0.0}, {0.0, 0.0}, 0.0}, 2);
  CHECK(balance.loss == 0.0);
  CHECK(balance.slope == std::vector<double>{0.0, 0.0});
}
