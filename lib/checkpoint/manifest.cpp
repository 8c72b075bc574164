#include "checkpoint/manifest.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.hpp"

namespace tessera {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The text ends with this, 32 hexadecimal digits, and kCommitEnd.
constexpr std::string_view kCommitBegin = ",\n\"commit\": \"";
constexpr std::string_view kCommitEnd = "\"\n}\n";

std::string hash_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

[[noreturn]] void bad(const std::string& what) {
  throw Error(ErrorCode::kCheckpoint, "the manifest " + what);
}

const Json& member(const Json& object, const char* key) {
  if (!object.is_object()) bad(fmt::format("has no object around '{}'", key));
  const auto found = object.find(key);
  if (found == object.end()) bad(fmt::format("lacks '{}'", key));
  return *found;
}

std::int64_t integer(const Json& value, const char* key,
                     std::int64_t limit = std::numeric_limits<std::int64_t>::max()) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(limit)) {
    bad(fmt::format("has an impossible '{}'", key));
  }
  return value.get<std::int64_t>();
}

const std::string& text(const Json& value, const char* key) {
  if (!value.is_string()) bad(fmt::format("has no text for '{}'", key));
  return value.get_ref<const std::string&>();
}

const Json& list(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_array()) bad(fmt::format("has no list for '{}'", key));
  return value;
}

std::uint32_t crc(const Json& value) {
  const std::string& digits = text(value, "crc32c");
  std::uint32_t result = 0;
  for (const char c : digits) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos || digits.size() != 8) bad("has an impossible 'crc32c'");
    result = result << 4 | static_cast<std::uint32_t>(digit);
  }
  return result;
}

OrderedJson tensor_to_json(const ManifestTensor& tensor) {
  OrderedJson slices = OrderedJson::array();
  for (const ManifestSlice& slice : tensor.slices) {
    slices.push_back({slice.begin, slice.count, slice.shard, slice.first_chunk});
  }
  return {{"name", tensor.name},
          {"dtype", to_string(tensor.dtype)},
          {"shape", tensor.shape.sizes()},
          {"slices", std::move(slices)}};
}

ManifestTensor tensor_from_json(const Json& json, const Manifest& manifest) {
  ManifestTensor tensor;
  tensor.name = text(member(json, "name"), "name");
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) bad("has an impossible name");
  try {
    tensor.dtype = dtype_from_string(text(member(json, "dtype"), "dtype"));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
    bad("has an unknown type for '" + tensor.name + "'");
  }
  std::vector<std::int64_t> sizes;
  for (const Json& size : list(json, "shape")) sizes.push_back(integer(size, "shape"));
  std::int64_t elements = 0;
  if (!is_plausible_shape(sizes, elements)) {
    bad("has an impossible shape for '" + tensor.name + "'");
  }
  tensor.shape = Shape(std::move(sizes));

  for (const Json& entry : list(json, "slices")) {
    if (!entry.is_array() || entry.size() != 4) bad("has a slice that is not four numbers");
    ManifestSlice slice;
    slice.begin = integer(entry[0], "slices", elements);
    slice.count = integer(entry[1], "slices", elements);
    const auto last_shard = static_cast<std::int64_t>(manifest.shards.size()) - 1;
    slice.shard = static_cast<std::uint32_t>(integer(entry[2], "slices", last_shard));
    const std::uint64_t chunks = manifest.shards[slice.shard].chunks;
    slice.first_chunk = static_cast<std::uint64_t>(integer(entry[3], "slices"));
    const std::uint64_t wanted = chunk_count(slice.count, tensor.dtype, manifest.chunk_bytes);
    if (slice.first_chunk > chunks || wanted > chunks - slice.first_chunk) {
      bad("names chunks of '" + tensor.name + "' that its shard has not");
    }
    tensor.slices.push_back(slice);
  }
  const std::string problem = cover_problem(tensor);
  if (!problem.empty()) bad("is wrong: " + problem);
  return tensor;
}

void read_shards(const Json& json, Manifest& manifest) {
  const Json& shards = list(json, "shards");
  if (shards.empty()) bad("has no shards");
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string wanted =
        shard_file_name(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(shards.size()));
    if (text(member(shards[i], "file"), "file") != wanted) {
      bad("names a shard file other than " + wanted);
    }
    ManifestShard shard;
    shard.bytes = static_cast<std::uint64_t>(integer(member(shards[i], "bytes"), "bytes"));
    shard.chunks = static_cast<std::uint64_t>(integer(member(shards[i], "chunks"), "chunks"));
    shard.crc = crc(member(shards[i], "crc32c"));
    manifest.shards.push_back(shard);
  }
}

// The text without its commit, after the commit was checked.
std::string_view checked_body(std::string_view whole) {
  const std::size_t tail = kCommitBegin.size() + 32 + kCommitEnd.size();
  if (whole.size() < tail || !whole.ends_with(kCommitEnd) ||
      whole.substr(whole.size() - tail, kCommitBegin.size()) != kCommitBegin) {
    bad("is incomplete: it does not end with its commit");
  }
  const std::string_view body = whole.substr(0, whole.size() - tail);
  if (whole.substr(body.size() + kCommitBegin.size(), 32) != hash_of(body)) {
    bad("is damaged: its commit does not fit its content");
  }
  return body;
}

}  // namespace

const ManifestTensor* Manifest::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const ManifestTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::string encode_manifest(const Manifest& manifest) {
  OrderedJson json;
  json["format"] = "tessera checkpoint";
  json["format_version"] = kManifestVersion;
  json["features"] = OrderedJson::array();
  json["step"] = manifest.step;
  json["save_id"] = manifest.save_id.to_hex();
  json["run_id"] = manifest.run_id;
  json["code_version"] = manifest.code_version;
  json["page_size"] = manifest.page_bytes;
  json["chunk_bytes"] = manifest.chunk_bytes;
  json["world_size"] = manifest.shards.size();
  json["mesh"] = manifest.mesh;
  json["versions"] = {{"model", manifest.versions.model},
                      {"data", manifest.versions.data},
                      {"config", manifest.versions.config}};
  OrderedJson common = OrderedJson::object();
  for (const auto& [key, value] : manifest.common) {
    common[key] = OrderedJson::parse(value, nullptr, false);
    if (common[key].is_discarded()) {
      fail(ErrorCode::kUsage, "the common state '{}' is not JSON: {}", key, value);
    }
  }
  json["common"] = std::move(common);
  json["config"] = manifest.config;
  OrderedJson shards = OrderedJson::array();
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    const ManifestShard& shard = manifest.shards[i];
    shards.push_back({{"file", shard_file_name(static_cast<std::uint32_t>(i),
                                               static_cast<std::uint32_t>(manifest.shards.size()))},
                      {"bytes", shard.bytes},
                      {"chunks", shard.chunks},
                      {"crc32c", fmt::format("{:08x}", shard.crc)}});
  }
  json["shards"] = std::move(shards);

  // One line per member and per tensor, so that people can read it.
  const auto dumped = [](const OrderedJson& value) {
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  };
  std::string body = "{";
  for (const auto& [key, value] : json.items()) {
    body += fmt::format("{}\n{}: {}", body.size() == 1 ? "" : ",", dumped(key), dumped(value));
  }
  body += ",\n\"tensors\": [";
  bool first = true;
  for (const ManifestTensor& tensor : manifest.tensors) {
    body += (std::exchange(first, false) ? "\n" : ",\n") + dumped(tensor_to_json(tensor));
  }
  body += "\n]";
  const std::string commit = hash_of(body);
  return body.append(kCommitBegin).append(commit).append(kCommitEnd);
}

Manifest decode_manifest(std::string_view whole) {
  const std::string_view body = checked_body(whole);
  const Json json = Json::parse(std::string(body) + "}", nullptr, false);
  if (!json.is_object()) bad("is not JSON");
  if (member(json, "format") != "tessera checkpoint") bad("is of another format");
  const std::int64_t version = integer(member(json, "format_version"), "format_version");
  if (version != kManifestVersion) {
    bad(fmt::format("has format version {}, this program reads {}", version, kManifestVersion));
  }
  if (!list(json, "features").empty()) {
    bad("needs features that this program has not: " + json["features"].dump());
  }

  Manifest manifest;
  manifest.step = integer(member(json, "step"), "step");
  if (!parse_save_id(text(member(json, "save_id"), "save_id"), manifest.save_id)) {
    bad("has an impossible 'save_id'");
  }
  manifest.run_id = text(member(json, "run_id"), "run_id");
  manifest.code_version = text(member(json, "code_version"), "code_version");
  const auto bits32 = std::numeric_limits<std::uint32_t>::max();
  manifest.page_bytes =
      static_cast<std::uint32_t>(integer(member(json, "page_size"), "page_size", bits32));
  manifest.chunk_bytes = static_cast<std::uint32_t>(
      integer(member(json, "chunk_bytes"), "chunk_bytes", kMaxChunkBytes));
  if (manifest.chunk_bytes == 0 || manifest.chunk_bytes % 8 != 0) {
    bad("has an impossible 'chunk_bytes'");
  }
  const Json& mesh = member(json, "mesh");
  if (!mesh.is_object()) bad("has no object for 'mesh'");
  for (const auto& [axis, size] : mesh.items()) manifest.mesh[axis] = integer(size, "mesh");
  const Json& versions = member(json, "versions");
  manifest.versions.model = text(member(versions, "model"), "model");
  manifest.versions.data = text(member(versions, "data"), "data");
  manifest.versions.config = text(member(versions, "config"), "config");
  const Json& common = member(json, "common");
  if (!common.is_object()) bad("has no object for 'common'");
  for (const auto& [key, value] : common.items()) manifest.common[key] = value.dump();
  manifest.config = text(member(json, "config"), "config");
  read_shards(json, manifest);
  if (integer(member(json, "world_size"), "world_size") !=
      static_cast<std::int64_t>(manifest.shards.size())) {
    bad("has another number of shards than ranks");
  }
  for (const Json& tensor : list(json, "tensors")) {
    manifest.tensors.push_back(tensor_from_json(tensor, manifest));
    const std::size_t count = manifest.tensors.size();
    if (count > 1 && manifest.tensors[count - 2].name >= manifest.tensors[count - 1].name) {
      bad("does not list the tensors in order, once each");
    }
  }
  return manifest;
}

std::string cover_problem(const ManifestTensor& tensor) {
  std::int64_t covered = 0;
  for (const ManifestSlice& slice : tensor.slices) {
    if (slice.begin > covered) {
      return fmt::format("elements {} to {} of '{}' are in no shard", covered, slice.begin,
                         tensor.name);
    }
    if (slice.begin < covered) {
      return fmt::format("elements from {} on of '{}' are in two shards", slice.begin, tensor.name);
    }
    covered += slice.count;
    if (covered > tensor.shape.elements()) {
      return fmt::format("'{}' has more elements than its shape", tensor.name);
    }
  }
  if (covered != tensor.shape.elements()) {
    return fmt::format("elements from {} on of '{}' {} are in no shard", covered, tensor.name,
                       tensor.shape.to_string());
  }
  return {};
}

std::vector<ManifestTensor> merge_slices(const std::vector<std::vector<SliceEntry>>& shards) {
  std::map<std::string, ManifestTensor> tensors;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    for (const SliceEntry& slice : shards[shard]) {
      const auto [found, is_new] = tensors.try_emplace(slice.name);
      ManifestTensor& tensor = found->second;
      if (is_new) {
        tensor.name = slice.name;
        tensor.dtype = slice.dtype;
        tensor.shape = slice.shape;
      } else if (tensor.dtype != slice.dtype || !(tensor.shape == slice.shape)) {
        fail(ErrorCode::kUsage, "'{}' is {} {} on rank {} and {} {} on another", slice.name,
             to_string(slice.dtype), slice.shape.to_string(), shard, to_string(tensor.dtype),
             tensor.shape.to_string());
      }
      if (slice.count == 0) continue;
      tensor.slices.push_back(
          {slice.begin, slice.count, static_cast<std::uint32_t>(shard), slice.first_chunk});
    }
  }
  std::vector<ManifestTensor> merged;
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.slices.begin(), tensor.slices.end(),
              [](const ManifestSlice& a, const ManifestSlice& b) { return a.begin < b.begin; });
    const std::string problem = cover_problem(tensor);
    if (!problem.empty()) fail(ErrorCode::kUsage, "the state to save is wrong: {}", problem);
    merged.push_back(std::move(tensor));
  }
  return merged;
}

}  // namespace tessera
