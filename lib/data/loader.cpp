#include <tessera/data.hpp>
#include <tessera/error.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "data/data_set.hpp"
#include "data/permutation.hpp"

namespace tessera {

namespace {

std::span<std::int32_t> row_of(const Tensor& tensor, std::int64_t row) {
  const auto length = static_cast<std::size_t>(tensor.size(1));
  return {tensor.data<std::int32_t>() + static_cast<std::size_t>(row) * length, length};
}

nlohmann::json common_value(const StateMap& state, const std::string& key) {
  const auto found = state.find(key);
  if (found == state.end()) {
    throw Error(ErrorCode::kCheckpoint, "the checkpoint lacks '" + key + "'");
  }
  return nlohmann::json::parse(found->second, nullptr, false);
}

std::uint64_t common_integer(const StateMap& state, const std::string& key) {
  const nlohmann::json value = common_value(state, key);
  if (!value.is_number_unsigned()) {
    fail(ErrorCode::kCheckpoint, "the checkpoint's '{}' is not a number: {}", key, state.at(key));
  }
  return value.get<std::uint64_t>();
}

}  // namespace

struct DataLoader::Impl {
  Impl(const Config& config, World& world_in, Env& env)
      : world(world_in),
        options(config.data),
        tokenizer(config.model.tokenizer),
        seed(config.run.seed),
        micro(config.trainer.micro_batch_size),
        accumulation(config.trainer.gradient_accumulation_steps) {
    const std::int64_t ranks = world.size();
    if (micro < 1 || accumulation < 1 ||
        config.trainer.train_batch_size != micro * accumulation * ranks) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("train_batch_size {} is not micro_batch_size {} x "
                              "gradient_accumulation_steps {} x {} ranks",
                              config.trainer.train_batch_size, micro, accumulation, ranks),
                  "trainer.train_batch_size");
    }
    set = open_data_set(env, world.comm(), world.logger(), options, tokenizer,
                        config.model.vocab_size);
    if (config.trainer.eval_interval > 0 && set.eval.count() == 0) {
      throw Error(ErrorCode::kData,
                  fmt::format("nothing is held out for evaluation: {} sequences, eval_fraction {}",
                              set.train.count(), options.eval_fraction),
                  "data.eval");
    }
  }

  // The sequence at a position of the endless order.
  std::int64_t sequence_at(std::int64_t position) {
    const std::int64_t epoch = position / set.train.count();
    const std::int64_t place = position % set.train.count();
    if (!options.shuffle) return place;
    if (!order || order_epoch != epoch) {
      order.emplace(seed, static_cast<std::uint64_t>(epoch),
                    static_cast<std::uint64_t>(set.train.count()));
      order_epoch = epoch;
    }
    return static_cast<std::int64_t>((*order)(static_cast<std::uint64_t>(place)));
  }

  // An empty micro batch whose every row is padding.
  MicroBatch padding() const {
    MicroBatch batch;
    const Shape shape{micro, options.seq_len};
    batch.tokens = Tensor(world.device(), shape, DType::kI32, MemoryTag::kData);
    batch.targets = Tensor(world.device(), shape, DType::kI32, MemoryTag::kData);
    batch.sequence_index = Tensor(world.device(), Shape{micro}, DType::kI64, MemoryTag::kData);
    std::fill_n(batch.tokens.data<std::int32_t>(), shape.elements(), 0);
    std::fill_n(batch.targets.data<std::int32_t>(), shape.elements(), kIgnoreTarget);
    std::fill_n(batch.sequence_index.data<std::int64_t>(), micro, -1);
    return batch;
  }

  void fill_row(MicroBatch& batch, std::int64_t row, SequenceRange& range, std::int64_t sequence,
                std::int64_t index) const {
    range.read(sequence, row_of(batch.tokens, row), row_of(batch.targets, row));
    batch.sequence_index.data<std::int64_t>()[row] = index;
    batch.unmasked_tokens += options.seq_len;
    batch.routed_tokens += options.seq_len;
  }

  World& world;
  DataOptions options;
  TokenizerOptions tokenizer;
  std::uint64_t seed;
  std::int64_t micro;
  std::int64_t accumulation;
  DataSet set;
  std::int64_t cursor = 0;
  std::optional<EpochPermutation> order;
  std::int64_t order_epoch = 0;
};

TokenCounts StepData::counts() const {
  TokenCounts counts;
  for (const MicroBatch& batch : micro_batches) {
    counts.unmasked += batch.unmasked_tokens;
    counts.routed += batch.routed_tokens;
  }
  return counts;
}

DataLoader::DataLoader(const Config& config, World& world)
    : impl_(std::make_unique<Impl>(config, world, Env::posix())) {}

DataLoader::DataLoader(const Config& config, World& world, Env& env)
    : impl_(std::make_unique<Impl>(config, world, env)) {}

DataLoader::~DataLoader() = default;

StepData DataLoader::next_step() {
  const std::int64_t ranks = impl_->world.size();
  StepData step;
  for (std::int64_t m = 0; m < impl_->accumulation; ++m) {
    MicroBatch batch = impl_->padding();
    const std::int64_t begin = impl_->cursor + (m * ranks + impl_->world.rank()) * impl_->micro;
    for (std::int64_t row = 0; row < impl_->micro; ++row) {
      const std::int64_t position = begin + row;
      impl_->fill_row(batch, row, impl_->set.train, impl_->sequence_at(position), position);
    }
    step.micro_batches.push_back(std::move(batch));
  }
  impl_->cursor += impl_->accumulation * ranks * impl_->micro;
  return step;
}

std::vector<MicroBatch> DataLoader::eval_batches(std::int64_t batches) {
  const std::int64_t ranks = impl_->world.size();
  const std::int64_t micro = impl_->micro;
  const std::int64_t available = impl_->set.eval.count();
  if (available == 0) {
    throw Error(ErrorCode::kData, "nothing is held out for evaluation", "data.eval");
  }
  std::vector<MicroBatch> result;
  for (std::int64_t m = 0; m < batches && m * ranks * micro < available; ++m) {
    MicroBatch batch = impl_->padding();
    const std::int64_t begin = (m * ranks + impl_->world.rank()) * micro;
    for (std::int64_t row = 0; row < micro && begin + row < available; ++row) {
      impl_->fill_row(batch, row, impl_->set.eval, begin + row, begin + row);
    }
    result.push_back(std::move(batch));
  }
  return result;
}

std::int64_t DataLoader::sequences_per_epoch() const { return impl_->set.train.count(); }

std::int64_t DataLoader::cursor() const { return impl_->cursor; }

double DataLoader::epoch() const {
  return static_cast<double>(impl_->cursor) / static_cast<double>(sequences_per_epoch());
}

int DataLoader::vocab_size() const { return tokenizer_vocab_size(impl_->tokenizer); }

std::string DataLoader::fingerprint() const { return impl_->set.fingerprint; }

std::vector<StateSlice> DataLoader::state_to_save() { return {}; }

std::vector<StateSlice> DataLoader::state_to_load() { return {}; }

void DataLoader::save_common(StateMap& state) {
  state["data.cursor"] = std::to_string(impl_->cursor);
  state["data.seed"] = std::to_string(impl_->seed);
  state["data.seq_len"] = std::to_string(impl_->options.seq_len);
  state["data.fingerprint"] = nlohmann::json(impl_->set.fingerprint).dump();
}

void DataLoader::load_common(const StateMap& state) {
  const std::uint64_t cursor = common_integer(state, "data.cursor");
  const std::uint64_t seed = common_integer(state, "data.seed");
  const std::uint64_t seq_len = common_integer(state, "data.seq_len");
  if (!common_value(state, "data.fingerprint").is_string()) {
    fail(ErrorCode::kCheckpoint, "the checkpoint's 'data.fingerprint' is not a text");
  }
  if (cursor > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    fail(ErrorCode::kCheckpoint, "the checkpoint's 'data.cursor' is too large: {}", cursor);
  }
  if (seq_len != static_cast<std::uint64_t>(impl_->options.seq_len)) {
    throw Error(ErrorCode::kCheckpoint,
                fmt::format("the checkpoint was trained with data.seq_len {}, now it is {}: the "
                            "sequences would be dealt out anew",
                            seq_len, impl_->options.seq_len),
                "data.seq_len");
  }
  if (seed != impl_->seed && impl_->world.rank() == 0) {
    impl_->world.logger().warning(fmt::format(
        "the data order keeps the checkpoint's seed {}, not run.seed {}", seed, impl_->seed));
  }
  impl_->seed = seed;
  impl_->cursor = static_cast<std::int64_t>(cursor);
  impl_->order.reset();
}

int tokenizer_vocab_size(const TokenizerOptions& options) {
  if (options.type != "byte") {
    throw Error(ErrorCode::kUsage,
                "only the byte tokenizer is supported, not '" + options.type + "'",
                "model.tokenizer.type");
  }
  return 256;
}

}  // namespace tessera
