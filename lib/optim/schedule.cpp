#include "optim/schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include <fmt/ranges.h>

#include "base/check.hpp"

namespace tessera {

Schedule::Schedule(const SchedulerOptions& options, double lr, std::int64_t total_steps)
    : options_(options),
      lr_(lr),
      total_(options.total_steps > 0 ? options.total_steps : total_steps) {
  constexpr std::array<std::string_view, 5> kTypes{"constant", "linear", "cosine", "wsd",
                                                   "inverse_sqrt"};
  if (std::ranges::find(kTypes, options.type) == kTypes.end()) {
    fail(ErrorCode::kUsage, "unknown scheduler.type '{}' ({})", options.type,
         fmt::join(kTypes, ", "));
  }
}

double Schedule::lr(std::int64_t taken) const {
  const std::int64_t warmup = options_.warmup_steps;
  const auto step = static_cast<double>(taken + 1);
  if (taken < warmup) return lr_ * step / static_cast<double>(warmup);
  const double floor = options_.min_lr_ratio;
  if (options_.type == "constant") return lr_;
  if (options_.type == "inverse_sqrt") {
    const auto reference = static_cast<double>(std::max<std::int64_t>(warmup, 1));
    return lr_ * std::max(floor, std::sqrt(reference / step));
  }
  const auto progress = [&](double begin) {
    const double length = static_cast<double>(total_) - begin;
    if (length <= 0.0) return step > begin ? 1.0 : 0.0;
    return std::clamp((step - begin) / length, 0.0, 1.0);
  };
  if (options_.type == "wsd") {
    const double decay_begin = static_cast<double>(total_) * (1.0 - options_.decay_ratio);
    return lr_ * (1.0 - progress(decay_begin) * (1.0 - floor));
  }
  const double p = progress(static_cast<double>(warmup));
  if (options_.type == "linear") return lr_ * (1.0 - p * (1.0 - floor));
  return lr_ * (floor + (1.0 - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * p)));
}

}  // namespace tessera
