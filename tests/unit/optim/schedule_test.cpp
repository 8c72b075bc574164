#include "optim/schedule.hpp"

#include <tessera/error.hpp>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tessera;

namespace {

Schedule make(const std::string& type, std::int64_t warmup, std::int64_t total, double floor = 0.0,
              double decay_ratio = 0.1) {
  SchedulerOptions options;
  options.type = type;
  options.warmup_steps = warmup;
  options.total_steps = total;
  options.min_lr_ratio = floor;
  options.decay_ratio = decay_ratio;
  return {options, 2.0, 7};
}

const std::vector<std::string> kTypes = {"constant", "linear", "cosine", "wsd", "inverse_sqrt"};

}  // namespace

TEST_CASE("warm-up is linear, begins above zero and ends at the full rate") {
  const std::string type = GENERATE(from_range(kTypes));
  INFO(type);
  const Schedule schedule = make(type, 4, 100, 0.1);
  CHECK(schedule.lr(0) == 0.5);
  CHECK(schedule.lr(1) == 1.0);
  CHECK(schedule.lr(2) == 1.5);
  CHECK(schedule.lr(3) == 2.0);
  // No jump behind it.
  CHECK(schedule.lr(4) <= 2.0);
  CHECK(schedule.lr(4) > 1.75);
}

TEST_CASE("no schedule's first rate is zero, none rises after warm-up or falls below its floor") {
  const std::string type = GENERATE(from_range(kTypes));
  INFO(type);
  for (const std::int64_t warmup : {0, 1, 5}) {
    const Schedule schedule = make(type, warmup, 40, 0.25);
    CHECK(schedule.lr(0) > 0.0);
    for (std::int64_t k = warmup; k < 60; ++k) {
      CHECK(schedule.lr(k + 1) <= schedule.lr(k));
      CHECK(schedule.lr(k) >= 0.5);
    }
  }
}

TEST_CASE("closed forms after warm-up") {
  const std::int64_t w = 10;
  const std::int64_t total = 110;
  const double r = 0.1;
  const Schedule constant = make("constant", w, total, r);
  const Schedule linear = make("linear", w, total, r);
  const Schedule cosine = make("cosine", w, total, r);
  const Schedule wsd = make("wsd", w, total, r, 0.2);
  const Schedule root = make("inverse_sqrt", w, total, 0.0);
  for (std::int64_t k = w; k < total; ++k) {
    const double p = static_cast<double>(k + 1 - w) / 100.0;
    CHECK(constant.lr(k) == 2.0);
    CHECK(linear.lr(k) == Approx(2.0 * (1.0 - p * 0.9)).epsilon(1e-12));
    CHECK(cosine.lr(k) ==
          Approx(2.0 * (0.1 + 0.9 * (1.0 + std::cos(std::numbers::pi * p)) / 2.0)).epsilon(1e-12));
    const double decay = std::max(0.0, static_cast<double>(k + 1 - 88) / 22.0);
    CHECK(wsd.lr(k) == Approx(2.0 * (1.0 - decay * 0.9)).epsilon(1e-12));
    CHECK(root.lr(k) == Approx(2.0 * std::sqrt(10.0 / static_cast<double>(k + 1))).epsilon(1e-12));
  }
  // The last step and all later ones have the final rate.
  for (const Schedule& schedule : {linear, cosine, wsd}) {
    for (const std::int64_t k : {total - 1, total, total + 1000}) {
      CHECK(schedule.lr(k) == Approx(0.2).epsilon(1e-12));
    }
  }
  CHECK(make("inverse_sqrt", 0, 100, 0.5).lr(0) == 2.0);
  CHECK(make("inverse_sqrt", 0, 100, 0.5).lr(1000) == 1.0);
}

TEST_CASE("schedules at their limits") {
  // As long as its warm-up, or shorter.
  for (const char* type : {"linear", "cosine", "wsd"}) {
    INFO(type);
    CHECK(make(type, 5, 5).lr(4) == 2.0);
    CHECK(make(type, 5, 5, 0.5).lr(5) == Approx(1.0));
    CHECK(make(type, 5, 3).lr(4) == 2.0);
    CHECK(make(type, 0, 1, 0.5).lr(0) == Approx(1.0));
  }
  // No decay at all, and nothing but decay.
  CHECK(make("wsd", 2, 50, 0.1, 0.0).lr(49) == 2.0);
  CHECK(make("wsd", 0, 50, 0.0, 1.0).lr(24) == Approx(1.0));
  // Without a length of its own a schedule has that of the run: 7.
  CHECK(make("linear", 0, 0).lr(6) == Approx(0.0).margin(1e-12));
  CHECK(make("linear", 0, 0).lr(5) > 0.1);
  CHECK_THROWS_AS(make("step", 3, 10), Error);
}
