// What a person sees while a run trains: one line per interval, or a live bar on a terminal.
#pragma once

#include <tessera/engine.hpp>
#include <tessera/log.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera {

/// Used by rank 0 alone.
class Progress {
 public:
  Progress(Logger& logger, std::int64_t max_steps, std::int64_t interval, int ranks);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Notes a step; prints when the interval is full. Rates are the interval's tokens by its time.
  void step(const StepResult& result);
  /// Ends a live bar's line, so that other output can follow.
  void clear_line();
  double seconds() const;
  std::int64_t tokens() const { return tokens_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(const StepResult& result, double tokens_per_s, double seconds_left) const;

  Logger& logger_;
  std::int64_t max_steps_;
  std::int64_t interval_;
  int ranks_;
  bool terminal_;
  bool line_open_ = false;
  Clock::time_point begin_;
  Clock::time_point interval_begin_;
  std::int64_t interval_tokens_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace tessera
