#include "train/metrics.hpp"

#include <cmath>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

/// Entropy of the load over experts, as a share of that of an even load: 1 = even, 0 = one expert.
double load_entropy(const std::vector<std::int64_t>& tokens) {
  double total = 0.0;
  for (const std::int64_t count : tokens) total += static_cast<double>(count);
  if (total == 0.0 || tokens.size() < 2) return 1.0;
  double entropy = 0.0;
  for (const std::int64_t count : tokens) {
    const double share = static_cast<double>(count) / total;
    if (share > 0.0) entropy -= share * std::log(share);
  }
  return entropy / std::log(static_cast<double>(tokens.size()));
}

Json experts_json(const std::vector<MoeReport>& reports) {
  Json layers = Json::array();
  for (const MoeReport& report : reports) {
    std::int64_t routes = 0;
    for (const std::int64_t count : report.expert_tokens) routes += count;
    Json layer;
    layer["layer"] = report.layer;
    layer["tokens"] = report.expert_tokens;
    layer["dropped_share"] =
        routes > 0 ? static_cast<double>(report.dropped_routes) / static_cast<double>(routes) : 0.0;
    layer["load_entropy"] = load_entropy(report.expert_tokens);
    layers.push_back(std::move(layer));
  }
  return layers;
}

Json memory_json(const MemoryUsage& memory) {
  Json bytes;
  for (std::size_t i = 0; i < memory.peak.size(); ++i) {
    bytes[std::string(to_string(static_cast<MemoryTag>(i)))] = memory.peak[i];
  }
  bytes["total"] = memory.peak_total;
  return bytes;
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// The row's step, or −1 where the line is no row.
std::int64_t step_of(std::string_view line) {
  const Json row = Json::parse(line, nullptr, false);
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) return -1;
  return row["step"].get<std::int64_t>();
}

}  // namespace

std::string metrics_row(const StepResult& result) {
  const double seconds = result.step_time_ms / 1000.0;
  Json row;
  row["step"] = result.step;
  row["tokens"] = result.tokens;
  row["loss"] = number(result.loss);
  row["aux_loss"] = number(result.aux_loss);
  row["z_loss"] = number(result.z_loss);
  row["lr"] = number(result.lr);
  row["grad_norm"] = number(result.grad_norm);
  row["loss_scale"] = number(result.loss_scale);
  row["skipped"] = result.skipped;
  row["skipped_total"] = result.skipped_total;
  row["precision"] = result.precision;
  row["step_time_ms"] = number(result.step_time_ms);
  row["comm_wait_ms"] = number(result.comm_wait_ms);
  row["tokens_per_s"] = number(seconds > 0.0 ? static_cast<double>(result.tokens) / seconds : 0.0);
  row["mfu"] = nullptr;
  row["memory"] = memory_json(result.memory);
  row["experts"] = experts_json(result.experts);
  return row.dump();
}

MetricsFile::MetricsFile(Env& env, const std::string& run_dir, std::int64_t last_step) {
  const std::string path = join_path(run_dir, "metrics.jsonl");
  if (env.exists(path)) {
    const std::string content = env.read_file(path, std::uint64_t{1} << 36);
    std::string kept;
    std::string discarded;
    for (std::size_t begin = 0; begin < content.size();) {
      const std::size_t end = std::min(content.find('\n', begin), content.size());
      const std::string_view line = std::string_view(content).substr(begin, end - begin);
      const std::int64_t step = step_of(line);
      const bool keep = end < content.size() && step >= 0 && step <= last_step;
      (keep ? kept : discarded).append(line).append("\n");
      begin = end + 1;
    }
    if (!discarded.empty()) {
      const auto file =
          env.open_for_write(join_path(run_dir, "metrics.discarded.jsonl"), OpenMode::kAppend);
      file->append(as_bytes(discarded));
      file->sync();
      file->close();
      env.write_file_atomically(path, kept);
    }
  }
  file_ = env.open_for_write(path, OpenMode::kAppend);
}

MetricsFile::~MetricsFile() = default;

void MetricsFile::write_step(const StepResult& result) {
  file_->append(as_bytes(metrics_row(result) + "\n"));
}

void MetricsFile::write_evaluation(std::int64_t step, double loss) {
  Json row;
  row["step"] = step;
  row["eval_loss"] = number(loss);
  file_->append(as_bytes(row.dump() + "\n"));
}

}  // namespace tessera
