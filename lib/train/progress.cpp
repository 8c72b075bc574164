#include "train/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace tessera {

namespace {

constexpr int kBarWidth = 24;

std::string duration(double seconds) {
  const std::int64_t whole = std::llround(seconds);
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

Progress::Progress(Logger& logger, std::int64_t max_steps, std::int64_t interval, int ranks)
    : logger_(logger),
      max_steps_(max_steps),
      interval_(interval),
      ranks_(ranks),
      terminal_(isatty(STDERR_FILENO) == 1),
      begin_(Clock::now()),
      interval_begin_(begin_) {}

Progress::~Progress() { clear_line(); }

double Progress::seconds() const { return seconds_between(begin_, Clock::now()); }

std::string Progress::line(const StepResult& result, double tokens_per_s,
                           double seconds_left) const {
  std::string text = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  lr {:.2e}  norm {:.3f}  {:.0f} tokens/s ({:.0f} per rank)  "
      "left {}",
      result.step, std::to_string(max_steps_).size(), max_steps_, result.loss, result.lr,
      result.grad_norm, tokens_per_s, tokens_per_s / ranks_, duration(seconds_left));
  if (!result.experts.empty()) text += fmt::format("  balance {:.3f}", result.aux_loss);
  if (result.skipped) text += "  skipped";
  return text;
}

void Progress::step(const StepResult& result) {
  const auto now = Clock::now();
  interval_tokens_ += result.tokens;
  tokens_ += result.tokens;
  ++steps_;
  if (interval_ <= 0 && !terminal_) return;
  const double interval_s = std::max(1e-9, seconds_between(interval_begin_, now));
  const double per_step = seconds_between(begin_, now) / static_cast<double>(steps_);
  const std::string text =
      line(result, static_cast<double>(interval_tokens_) / interval_s,
           per_step * static_cast<double>(std::max<std::int64_t>(0, max_steps_ - result.step)));
  const bool due = interval_ > 0 && (result.step % interval_ == 0 || result.step == max_steps_);
  if (terminal_) {
    const int filled =
        static_cast<int>(kBarWidth * result.step / std::max<std::int64_t>(1, max_steps_));
    const std::string bar =
        std::string(static_cast<std::size_t>(std::min(filled, kBarWidth)), '=') +
        std::string(static_cast<std::size_t>(std::max(0, kBarWidth - filled)), ' ');
    std::fprintf(stderr, "\r\033[K[%s] %s", bar.c_str(), text.c_str());
    std::fflush(stderr);
    line_open_ = true;
  }
  if (!due) return;
  clear_line();
  logger_.info(text);
  interval_begin_ = now;
  interval_tokens_ = 0;
}

void Progress::clear_line() {
  if (!line_open_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  line_open_ = false;
}

}  // namespace tessera
