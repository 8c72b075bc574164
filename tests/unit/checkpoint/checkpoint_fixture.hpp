// State with known values, divided among ranks, for tests of checkpoints.
#pragma once

#include <tessera/checkpoint.hpp>
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "base/philox.hpp"

namespace tessera::testing {

/// A tensor of the test state.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::kF32;
};

/// Element `index` of tensor `name` in generation `salt`: an integer of 8 bits, so that every type
/// holds it exactly.
inline float value_at(const std::string& name, std::int64_t index, std::uint64_t salt) {
  const Philox4 words = philox(hash_name(name), static_cast<std::uint64_t>(index), salt);
  return static_cast<float>(static_cast<int>(words.word[0] & 0xff) - 128);
}

inline void store(std::byte* place, DType dtype, float value) {
  const auto put = [place](auto typed) { std::memcpy(place, &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::kF32: return put(value);
    case DType::kF64: return put(static_cast<double>(value));
    case DType::kBF16: return put(BF16(value));
    case DType::kF16: return put(F16(value));
    case DType::kI64: return put(static_cast<std::int64_t>(value));
    case DType::kI32: return put(static_cast<std::int32_t>(value));
    default: return put(static_cast<std::int8_t>(value));
  }
}

inline float fetch(const std::byte* place, DType dtype) {
  const auto get = [place](auto typed) {
    std::memcpy(&typed, place, sizeof(typed));
    return static_cast<float>(typed);
  };
  switch (dtype) {
    case DType::kF32: return get(0.0f);
    case DType::kF64: return get(0.0);
    case DType::kBF16: return get(BF16());
    case DType::kF16: return get(F16());
    case DType::kI64: return get(std::int64_t{0});
    case DType::kI32: return get(std::int32_t{0});
    default: return get(std::int8_t{0});
  }
}

/// Divides every tensor among the ranks in uneven intervals that do not meet chunk borders.
class TestSource final : public StateSource {
 public:
  TestSource(World& world, std::vector<TensorSpec> specs, std::uint64_t salt = 0)
      : world_(world), specs_(std::move(specs)), salt_(salt) {}

  /// Every rank wants all of every tensor, not only its part.
  bool want_all = false;
  /// Loads into tensors of this type instead of the stored one.
  std::optional<DType> load_as;
  int loaded = 0;

  std::vector<StateSlice> state_to_save() override { return slices(salt_); }
  std::vector<StateSlice> state_to_load() override {
    wanted_ = slices(std::nullopt);
    return wanted_;
  }
  void save_common(StateMap& state) override {
    state["test.salt"] = std::to_string(salt_);
    state["test.text"] = "\"quoted \\u00e9\"";
    state["test.number"] = "0.1";
  }
  void load_common(const StateMap& state) override {
    const auto found = state.find("test.salt");
    if (found == state.end()) throw Error(ErrorCode::kCheckpoint, "'test.salt' is missing");
    salt_ = std::stoull(found->second);
  }
  void state_loaded() override { ++loaded; }

  /// What is wrong with the loaded values, which are of generation `salt`; "" = nothing.
  std::string problem(std::uint64_t salt) const {
    if (salt_ != salt) return "common state of generation " + std::to_string(salt_);
    for (const StateSlice& slice : wanted_) {
      const std::size_t bytes = size_of(slice.data.dtype());
      const auto* data = static_cast<const std::byte*>(slice.data.raw_data());
      for (std::int64_t i = 0; i < slice.data.elements(); ++i) {
        const float value = fetch(data + static_cast<std::size_t>(i) * bytes, slice.data.dtype());
        if (value != value_at(slice.name, slice.begin + i, salt)) {
          return slice.name + " element " + std::to_string(slice.begin + i) + " is " +
                 std::to_string(value);
        }
      }
    }
    return {};
  }

 private:
  // Borders at thirds of a tensor's ranks-th parts: uneven, some parts empty.
  static std::int64_t border(std::int64_t elements, int rank, int ranks) {
    if (rank == 0) return 0;
    if (rank == ranks) return elements;
    return std::min(elements, (elements * rank * 10 + 7) / (ranks * 10 + 3));
  }

  std::vector<StateSlice> slices(std::optional<std::uint64_t> salt) const {
    std::vector<StateSlice> result;
    for (const TensorSpec& spec : specs_) {
      StateSlice slice;
      slice.name = spec.name;
      slice.shape = Shape(spec.shape);
      slice.dtype = !salt && load_as ? *load_as : spec.dtype;
      const bool all = !salt && want_all;
      const std::int64_t elements = slice.shape.elements();
      slice.begin = all ? 0 : border(elements, world_.rank(), world_.size());
      const std::int64_t end = all ? elements : border(elements, world_.rank() + 1, world_.size());
      slice.data = Tensor(world_.device(), Shape{end - slice.begin}, slice.dtype);
      auto* data = static_cast<std::byte*>(slice.data.raw_data());
      const std::size_t bytes = size_of(slice.dtype);
      for (std::int64_t i = 0; i < slice.data.elements(); ++i) {
        const float value = salt ? value_at(spec.name, slice.begin + i, *salt) : 77.0f;
        store(data + static_cast<std::size_t>(i) * bytes, slice.dtype, value);
      }
      result.push_back(std::move(slice));
    }
    return result;
  }

  World& world_;
  std::vector<TensorSpec> specs_;
  std::uint64_t salt_;
  std::vector<StateSlice> wanted_;
};

/// A logger that remembers.
class MemoryLogger final : public Logger {
 public:
  void log(LogLevel, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    text_ += std::string(message) + "\n";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// Runs `body` on `ranks` ranks; returns what each raised as "code: text", or "" each.
inline std::vector<std::string> errors_of_ranks(int ranks, const std::function<void(World&)>& body,
                                                std::shared_ptr<Logger> logger = nullptr) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  WorldOptions options;
  options.logger = std::move(logger);
  run_ranks(ranks, options, [&](World& world) {
    try {
      body(world);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(world.rank())] =
          std::string(to_string(error.code())) + ": " + error.what();
    }
  });
  return errors;
}

/// The error that all ranks share ("" = none), or how they differ.
inline std::string common_error(int ranks, const std::function<void(World&)>& body,
                                std::shared_ptr<Logger> logger = nullptr) {
  const auto errors = errors_of_ranks(ranks, body, std::move(logger));
  for (const std::string& error : errors) {
    if (error != errors[0]) return "ranks differ: '" + errors[0] + "' and '" + error + "'";
  }
  return errors[0];
}

inline VersionTriple test_versions() { return {"model-1", "data-1", "config-1"}; }

}  // namespace tessera::testing
