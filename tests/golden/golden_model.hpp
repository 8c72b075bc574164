// A golden model's directory: its weights, and the values that PyTorch computed with them.
#pragma once

#include <tessera/data.hpp>
#include <tessera/import.hpp>
#include <tessera/models.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "checkpoint/safetensors.hpp"
#include "train/hf_weights.hpp"

namespace tessera::testing {

inline std::string golden_directory(const std::string& name) {
  return std::string(TESSERA_SOURCE_DIR) + "/tests/golden/" + name;
}

/// Sequences on the host: tokens and targets, row by row.
struct HostBatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  std::int64_t time = 0;

  std::int64_t sequences() const { return static_cast<std::int64_t>(tokens.size()) / time; }

  /// Sequences [begin, begin + count) as a micro batch.
  MicroBatch micro_batch(Device& device, std::int64_t begin, std::int64_t count) const {
    const auto upload = [&](const auto* values, Shape shape, DType dtype) {
      Tensor tensor(device, std::move(shape), dtype, MemoryTag::kData);
      std::memcpy(tensor.raw_data(), values, tensor.bytes());
      return tensor;
    };
    std::vector<std::int64_t> index;
    for (std::int64_t i = 0; i < count; ++i) index.push_back(begin + i);
    MicroBatch batch;
    batch.tokens = upload(tokens.data() + begin * time, {count, time}, DType::kI32);
    batch.targets = upload(targets.data() + begin * time, {count, time}, DType::kI32);
    batch.sequence_index = upload(index.data(), {count}, DType::kI64);
    batch.routed_tokens = count * time;
    batch.unmasked_tokens =
        std::count_if(targets.begin() + begin * time, targets.begin() + (begin + count) * time,
                      [](std::int32_t target) { return target >= 0; });
    return batch;
  }
  MicroBatch micro_batch(Device& device) const { return micro_batch(device, 0, sequences()); }
};

struct GoldenModel {
  explicit GoldenModel(const std::string& name)
      : directory(golden_directory(name)),
        config(read_hugging_face_config(directory)),
        values(SafetensorsFile::open(Env::posix(), directory + "/golden.safetensors")) {}

  std::string directory;
  HuggingFaceConfig config;
  SafetensorsFile values;

  std::unique_ptr<Model> make() const { return models::make(config.model, config.moe); }

  HostBatch batch() const {
    return {values.values<std::int32_t>("tokens"), values.values<std::int32_t>("targets"),
            values.at("tokens").shape.at(1)};
  }

  std::vector<HostBatch> train_batches() const {
    const auto tokens = values.values<std::int32_t>("train_tokens");
    const auto targets = values.values<std::int32_t>("train_targets");
    const auto& shape = values.at("train_tokens").shape;
    const auto size = static_cast<std::ptrdiff_t>(shape.at(1) * shape.at(2));
    std::vector<HostBatch> batches;
    for (std::int64_t step = 0; step < shape.at(0); ++step) {
      const auto at = [&](const auto& all) { return all.begin() + step * size; };
      batches.push_back(
          {{at(tokens), at(tokens) + size}, {at(targets), at(targets) + size}, shape.at(2)});
    }
    return batches;
  }

  /// The recorded gradient of a parameter, in the parameter's own order.
  std::vector<float> gradient(const Parameter& parameter) const {
    const StoredName name = stored_name(config.model.family, parameter.name);
    const auto stored = values.values<float>("grad/" + name.tensor);
    const std::int64_t elements = parameter.shape.elements();
    const std::int64_t outputs = parameter.shape[0];
    const std::int64_t inputs = elements / outputs;
    std::vector<float> result;
    for (std::int64_t output = 0; output < outputs; ++output) {
      for (std::int64_t input = 0; input < inputs; ++input) {
        const std::int64_t at = name.transposed
                                    ? input * outputs * name.parts + name.part * outputs + output
                                    : name.part * elements + output * inputs + input;
        result.push_back(stored.at(static_cast<std::size_t>(at)));
      }
    }
    return result;
  }
};

inline double max_abs(const std::vector<float>& values) {
  double largest = 0.0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

/// Largest difference; NaN is infinitely far from everything.
inline double max_difference(const float* a, const std::vector<float>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= largest)) largest = std::isnan(difference) ? HUGE_VAL : difference;
  }
  return largest;
}

/// Largest relative difference of two series.
inline double max_relative(const std::vector<double>& series, const std::vector<float>& golden) {
  if (series.size() != golden.size()) return HUGE_VAL;
  double largest = 0.0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const double difference = std::abs(series[i] / double{golden[i]} - 1.0);
    if (!(difference <= largest)) largest = std::isnan(difference) ? HUGE_VAL : difference;
  }
  return largest;
}

}  // namespace tessera::testing
