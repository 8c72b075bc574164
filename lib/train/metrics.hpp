// metrics.jsonl: one JSON object per optimizer step, and one per evaluation (docs/metrics.md).
#pragma once

#include <tessera/engine.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "base/env.hpp"

namespace tessera {

/// Writes the file of one run; used by rank 0 alone. Each row is flushed to the system at once.
class MetricsFile {
 public:
  /// Opens run_dir/metrics.jsonl and cuts it after `last_step`: later rows move to
  /// run_dir/metrics.discarded.jsonl. A broken last row (of a job that was killed) is moved too.
  MetricsFile(Env& env, const std::string& run_dir, std::int64_t last_step);
  ~MetricsFile();

  void write_step(const StepResult& result);
  void write_evaluation(std::int64_t step, double loss);

 private:
  std::unique_ptr<WritableFile> file_;
};

/// A step's row as JSON text. Numbers read back to the same bits; non-finite ones are the strings
/// "NaN", "Infinity" and "-Infinity".
std::string metrics_row(const StepResult& result);

}  // namespace tessera
