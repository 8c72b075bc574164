// Learning-rate schedules, counted in optimizer steps that were taken (skipped ones do not count).
#pragma once

#include <tessera/options.hpp>

#include <cstdint>

namespace tessera {

/// lr as a function of the number k of steps taken before this one. During warm-up of w steps it is
/// lr·(k+1)/w, so that the first step's rate is not zero and step w−1 has the full one. Afterwards,
/// with p = (k+1−w)/(total−w) cut to [0, 1] and r = min_lr_ratio:
///   constant      lr
///   linear        lr·(1 − p·(1−r))
///   cosine        lr·(r + (1−r)·(1+cos(πp))/2)
///   wsd           lr until the last decay_ratio·total steps, then linear to r
///   inverse_sqrt  lr·sqrt(max(w,1)/(k+1)), at least lr·r
class Schedule {
 public:
  /// `total_steps` holds where the options say 0. Raises Error{kUsage} for an unknown type.
  Schedule(const SchedulerOptions& options, double lr, std::int64_t total_steps);
  double lr(std::int64_t taken) const;

 private:
  SchedulerOptions options_;
  double lr_;
  std::int64_t total_;
};

}  // namespace tessera
