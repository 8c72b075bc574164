// The engine's state as named intervals of global tensors, for checkpoints.
#include <charconv>
#include <cstring>

#include "base/check.hpp"
#include "zero/engine_impl.hpp"

namespace tessera {

namespace {

/// Slices of `flat`, which holds the unit's interval beginning at `begin`, under a name prefix.
void add_slices(const ShardedUnit& unit, const std::string& prefix, const Tensor& flat,
                std::int64_t begin, std::vector<StateSlice>& slices) {
  for (const PartitionPiece& piece : unit.partition().pieces_in(begin, flat.elements())) {
    StateSlice slice;
    slice.name = prefix + "/" + piece.parameter->name;
    slice.shape = piece.parameter->shape;
    slice.begin = piece.parameter_begin;
    slice.data = flat.flat_slice(piece.flat_begin - begin, piece.elements);
    slices.push_back(std::move(slice));
  }
}

std::int64_t read_integer(const StateMap& state, const std::string& key) {
  const auto found = state.find(key);
  if (found == state.end()) {
    throw Error(ErrorCode::kCheckpoint, "the checkpoint has no '" + key + "'");
  }
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || value < 0) {
    throw Error(ErrorCode::kCheckpoint, "the checkpoint's '" + key + "' is '" + text + "'");
  }
  return value;
}

}  // namespace

std::vector<StateSlice> Engine::state_to_save() {
  std::vector<StateSlice> slices;
  for (const auto& unit : impl_->units) {
    if (!unit) continue;
    const std::int64_t own = unit->own_interval().first;
    add_slices(*unit, "param", unit->own_range(), own, slices);
    // In stage 0 every rank has all of the state; each saves its own range.
    const std::int64_t at = own - unit->state_interval().first;
    for (std::size_t i = 0; i < unit->optimizer_state().size(); ++i) {
      add_slices(*unit, impl_->optimizer.state_names()[i],
                 unit->optimizer_state()[i].flat_slice(at, unit->own_interval().second), own,
                 slices);
    }
  }
  impl_->context.stream().synchronize();
  return slices;
}

std::vector<StateSlice> Engine::state_to_load() {
  std::vector<StateSlice> slices;
  for (const auto& unit : impl_->units) {
    if (!unit) continue;
    add_slices(*unit, "param", unit->own_range(), unit->own_interval().first, slices);
    for (std::size_t i = 0; i < unit->optimizer_state().size(); ++i) {
      add_slices(*unit, impl_->optimizer.state_names()[i], unit->optimizer_state()[i],
                 unit->state_interval().first, slices);
    }
  }
  impl_->context.stream().synchronize();
  return slices;
}

void Engine::save_common(StateMap& state) {
  state["engine.step"] = std::to_string(impl_->step);
  state["engine.taken"] = std::to_string(impl_->taken);
  state["engine.skipped"] = std::to_string(impl_->skipped);
}

void Engine::load_common(const StateMap& state) {
  impl_->step = read_integer(state, "engine.step");
  impl_->taken = read_integer(state, "engine.taken");
  impl_->skipped = read_integer(state, "engine.skipped");
}

void Engine::state_loaded() {
  for (auto& unit : impl_->units) {
    if (unit) unit->values_loaded();
  }
}

std::vector<float> Engine::full_parameter(const std::string& name) {
  // Every rank contributes the pieces of its own range: header (first element), then the values.
  std::string own;
  std::int64_t elements = -1;
  for (const auto& parameter : impl_->model.parameters()) {
    if (parameter->name == name) elements = parameter->shape.elements();
  }
  if (elements < 0) throw Error(ErrorCode::kUsage, "the model has no parameter '" + name + "'");
  for (const StateSlice& slice : state_to_save()) {
    if (slice.name != "param/" + name) continue;
    own.append(reinterpret_cast<const char*>(&slice.begin), sizeof(slice.begin));
    own.append(reinterpret_cast<const char*>(slice.data.data<float>()), slice.data.bytes());
  }
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (const std::string& piece : impl_->world.comm().all_gather_bytes(own, "full parameter")) {
    if (piece.empty()) continue;
    std::int64_t begin = 0;
    std::memcpy(&begin, piece.data(), sizeof(begin));
    std::memcpy(values.data() + begin, piece.data() + sizeof(begin), piece.size() - sizeof(begin));
  }
  return values;
}

}  // namespace tessera
