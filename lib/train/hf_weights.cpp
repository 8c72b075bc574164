#include "train/hf_weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/half.hpp"

namespace tessera {

namespace {

/// Elements that are converted or compared at a time.
constexpr std::int64_t kChunk = 1 << 20;

bool replace_suffix(std::string& text, std::string_view old_suffix, std::string_view new_suffix) {
  if (!text.ends_with(old_suffix)) return false;
  text.replace(text.size() - old_suffix.size(), old_suffix.size(), new_suffix);
  return true;
}

std::string trunk_prefix(const std::string& family) {
  return family == "gpt2" ? "transformer." : "model.";
}

/// The shape in which the tensor that holds this parameter is stored.
Shape stored_shape(const StoredName& name, const Shape& shape) {
  std::vector<std::int64_t> sizes = shape.sizes();
  sizes.front() *= name.parts;
  if (name.transposed) std::ranges::reverse(sizes);
  return Shape(std::move(sizes));
}

template <typename T>
void convert(const std::vector<std::byte>& bytes, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
}

/// Elements [begin, begin + count) of a stored tensor, in its own order.
void read_stored(const SafetensorsFile& file, const SafetensorsEntry& entry, std::int64_t begin,
                 std::int64_t count, float* values) {
  const DType dtype = entry.dtype.value();
  const auto width = size_of(dtype);
  if (dtype == DType::kF32) {
    file.read(entry.name, static_cast<std::uint64_t>(begin) * width,
              std::as_writable_bytes(std::span(values, static_cast<std::size_t>(count))));
    return;
  }
  std::vector<std::byte> bytes;
  for (std::int64_t done = 0; done < count; done += kChunk) {
    const std::int64_t part = std::min(kChunk, count - done);
    bytes.resize(static_cast<std::size_t>(part) * width);
    file.read(entry.name, static_cast<std::uint64_t>(begin + done) * width, bytes);
    switch (dtype) {
      case DType::kBF16: convert<BF16>(bytes, part, values + done); break;
      case DType::kF16: convert<F16>(bytes, part, values + done); break;
      case DType::kF64: convert<double>(bytes, part, values + done); break;
      default: TESSERA_CHECK(false, "tensor '{}' is {}", entry.name, to_string(dtype));
    }
  }
}

bool is_readable(const SafetensorsEntry& entry) {
  return entry.dtype == DType::kF32 || entry.dtype == DType::kBF16 || entry.dtype == DType::kF16 ||
         entry.dtype == DType::kF64;
}

}  // namespace

StoredName stored_name(const std::string& family, const std::string& parameter) {
  StoredName name{.tensor = parameter};
  if (family != "gpt2") return name;
  constexpr std::array<std::string_view, 3> kFused{"q_proj", "k_proj", "v_proj"};
  for (std::size_t part = 0; part < kFused.size(); ++part) {
    for (const std::string_view kind : {"weight", "bias"}) {
      if (!replace_suffix(name.tensor, fmt::format(".attn.{}.{}", kFused[part], kind),
                          fmt::format(".attn.c_attn.{}", kind))) {
        continue;
      }
      return {name.tensor, kind == "weight", static_cast<int>(part), kFused.size()};
    }
  }
  for (const std::string_view suffix :
       {".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"}) {
    name.transposed = name.transposed || parameter.ends_with(suffix);
  }
  return name;
}

bool is_known_buffer(const std::string& tensor) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") ||
         tensor.ends_with(".rotary_emb.inv_freq");
}

void HuggingFaceWeights::open_files(Env& env, const std::string& directory) {
  const std::string single = join_path(directory, "model.safetensors");
  const std::string index = single + ".index.json";
  if (env.exists(single)) {
    files_.push_back(SafetensorsFile::open(env, single));
  } else if (env.exists(index)) {
    const auto document = nlohmann::json::parse(env.read_file(index), nullptr, false);
    if (!document.is_object() || !document.contains("weight_map") ||
        !document["weight_map"].is_object()) {
      throw Error(ErrorCode::kData, "not a JSON object with a 'weight_map'", index);
    }
    std::map<std::string, std::set<std::string>> promised;
    for (const auto& [tensor, file] : document["weight_map"].items()) {
      const bool plain = file.is_string() && !file.get<std::string>().empty() &&
                         file.get<std::string>().find('/') == std::string::npos;
      if (!plain) {
        throw Error(ErrorCode::kData, fmt::format("tensor '{}' is in no plain file name", tensor),
                    index);
      }
      promised[file.get<std::string>()].insert(tensor);
    }
    for (const auto& [file, tensors] : promised) {
      files_.push_back(SafetensorsFile::open(env, join_path(directory, file)));
      for (const std::string& tensor : tensors) files_.back().at(tensor);
    }
  } else {
    throw Error(ErrorCode::kData, "there is no model.safetensors and no index of several files",
                directory);
  }
  for (std::size_t i = 0; i < files_.size(); ++i) {
    for (const SafetensorsEntry& entry : files_[i].entries()) {
      if (!tensors_.try_emplace(entry.name, i).second) {
        throw Error(ErrorCode::kData, fmt::format("tensor '{}' is in two files", entry.name),
                    files_[i].path());
      }
    }
  }
}

HuggingFaceWeights::Source HuggingFaceWeights::find(const StoredName& name,
                                                    const Shape& shape) const {
  const auto found = tensors_.find(name.tensor);
  if (found == tensors_.end()) return {};
  const SafetensorsFile& file = files_[found->second];
  const SafetensorsEntry& entry = file.at(name.tensor);
  const Shape expected = stored_shape(name, shape);
  if (Shape(entry.shape) != expected) {
    throw Error(ErrorCode::kData,
                fmt::format("tensor '{}' has shape {}, the model needs {}", name.tensor,
                            Shape(entry.shape).to_string(), expected.to_string()),
                file.path());
  }
  if (!is_readable(entry)) {
    throw Error(ErrorCode::kData,
                fmt::format("tensor '{}' has type {}; weights are F32, BF16, F16 or F64",
                            name.tensor, entry.stored_type),
                file.path());
  }
  return {&file, &entry, name, shape};
}

HuggingFaceWeights::HuggingFaceWeights(Env& env, const std::string& directory,
                                       const HuggingFaceConfig& config, Model& model) {
  open_files(env, directory);
  const std::string& family = config.model.family;
  const std::string trunk = trunk_prefix(family);
  const bool bare = std::ranges::none_of(
      tensors_, [&](const auto& tensor) { return tensor.first.starts_with(trunk); });

  std::map<const Parameter*, std::vector<std::string>> names;
  for (const auto& [name, parameter] : model.named_parameters()) {
    names[parameter.get()].push_back(name);
  }
  std::set<std::string> used;
  for (const auto& parameter : model.parameters()) {
    const auto& aliases = names[parameter.get()];
    if (std::ranges::find(aliases, "lm_head.weight") != aliases.end() &&
        (aliases.size() > 1) != config.model.tie_embeddings) {
      throw Error(ErrorCode::kData,
                  fmt::format("tie_word_embeddings is {}, but the model's output head is {}",
                              config.model.tie_embeddings, aliases.size() > 1 ? "tied" : "its own"),
                  join_path(directory, "config.json"));
    }
    Source& source = sources_[parameter->name];
    for (const std::string& alias : aliases) {
      StoredName name = stored_name(family, alias);
      if (bare && name.tensor.starts_with(trunk)) name.tensor.erase(0, trunk.size());
      const Source found = find(name, parameter->shape);
      if (found.file == nullptr) continue;
      used.insert(name.tensor);
      if (source.file != nullptr) require_equal(source, found);
      source = found;
    }
    if (source.file == nullptr) {
      const bool head = parameter->name == "lm_head.weight";
      throw Error(
          ErrorCode::kData,
          fmt::format("there is no tensor '{}'{}{}", stored_name(family, parameter->name).tensor,
                      aliases.size() > 1 ? ", under none of its names" : "",
                      head ? ", and tie_word_embeddings is false" : ""),
          directory);
    }
  }
  for (const auto& [tensor, file] : tensors_) {
    if (used.contains(tensor) || is_known_buffer(tensor)) continue;
    throw Error(ErrorCode::kData, fmt::format("tensor '{}' has no place in the model", tensor),
                files_[file].path());
  }
}

void HuggingFaceWeights::require_equal(const Source& a, const Source& b) {
  const std::int64_t elements = a.shape.elements();
  std::vector<float> x;
  std::vector<float> y;
  for (std::int64_t done = 0; done < elements; done += kChunk) {
    const std::int64_t part = std::min(kChunk, elements - done);
    x.resize(static_cast<std::size_t>(part));
    y.resize(static_cast<std::size_t>(part));
    read_from(a, done, part, x.data());
    read_from(b, done, part, y.data());
    if (std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0) continue;
    throw Error(ErrorCode::kData,
                fmt::format("tensors '{}' and '{}' differ, but the configuration ties them",
                            a.name.tensor, b.name.tensor),
                b.file->path());
  }
}

void HuggingFaceWeights::read(const std::string& parameter, std::int64_t begin, std::int64_t count,
                              float* values) const {
  const auto found = sources_.find(parameter);
  TESSERA_CHECK(found != sources_.end(), "no parameter '{}'", parameter);
  TESSERA_CHECK(begin >= 0 && count >= 0 && begin + count <= found->second.shape.elements(),
                "elements {} to {} of '{}'", begin, begin + count, parameter);
  if (count > 0) read_from(found->second, begin, count, values);
}

void HuggingFaceWeights::read_from(const Source& source, std::int64_t begin, std::int64_t count,
                                   float* values) {
  const StoredName& name = source.name;
  if (!name.transposed) {
    read_stored(*source.file, *source.entry, name.part * source.shape.elements() + begin, count,
                values);
    return;
  }
  // Stored row k holds input k of all outputs: of each, the outputs that the range touches.
  const std::int64_t outputs = source.shape[0];
  const std::int64_t inputs = source.shape[1];
  const std::int64_t first = begin / inputs;
  const std::int64_t last = (begin + count - 1) / inputs;
  std::vector<float> row(static_cast<std::size_t>(last - first + 1));
  for (std::int64_t k = 0; k < inputs; ++k) {
    read_stored(*source.file, *source.entry, (k * name.parts + name.part) * outputs + first,
                last - first + 1, row.data());
    for (std::int64_t output = first; output <= last; ++output) {
      const std::int64_t at = output * inputs + k - begin;
      if (at >= 0 && at < count) values[at] = row[static_cast<std::size_t>(output - first)];
    }
  }
}

}  // namespace tessera
