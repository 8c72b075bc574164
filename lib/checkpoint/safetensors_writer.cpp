#include <tessera/error.hpp>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/safetensors_types.hpp"

namespace tessera {

namespace {

/// Index into kSafetensorsTypes.
std::size_t type_index(DType dtype) {
  for (std::size_t i = 0; i < kSafetensorsTypes.size(); ++i) {
    if (kSafetensorsTypes[i].dtype == dtype) return i;
  }
  TESSERA_CHECK(false, "type {} has no name in this format", to_string(dtype));
}

std::uint64_t bytes_of(const SafetensorsSpec& tensor, const std::string& path) {
  std::uint64_t bytes = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("tensor '{}' has an impossible shape [{}]", tensor.name,
                              fmt::join(tensor.shape, ", ")),
                  path);
    }
  }
  return bytes;
}

std::string quoted(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kUsage, "a name or metadata text is not UTF-8", path);
  }
}

/// The reference implementation's order: widest type first, then by name.
void sort_for_file(std::vector<SafetensorsSpec>& tensors, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsSpec& tensor : tensors) {
    if (tensor.name == "__metadata__") {
      throw Error(ErrorCode::kUsage, "the name '__metadata__' is reserved", path);
    }
    if (tensor.shape.size() > kMaxSafetensorsRank) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("tensor '{}' has more than {} dimensions", tensor.name, kMaxSafetensorsRank),
          path);
    }
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw Error(ErrorCode::kUsage, fmt::format("tensor '{}' is given twice", *twice), path);
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const std::size_t type_a = type_index(a.dtype);
    const std::size_t type_b = type_index(b.dtype);
    return std::tie(type_b, a.name) < std::tie(type_a, b.name);
  });
}

/// Length and header of sorted tensors.
std::string make_header(const std::vector<SafetensorsSpec>& tensors,
                        const SafetensorsMetadata& metadata, const std::string& path) {
  std::string header = "{";
  const auto separate = [&] {
    if (header.size() > 1) header += ',';
  };
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    const char* comma = "";
    for (const auto& [key, value] : metadata) {
      header += fmt::format("{}{}:{}", comma, quoted(key, path), quoted(value, path));
      comma = ",";
    }
    header += '}';
  }
  std::uint64_t begin = 0;
  for (const SafetensorsSpec& tensor : tensors) {
    std::uint64_t end = 0;
    if (__builtin_add_overflow(begin, bytes_of(tensor, path), &end)) {
      throw Error(ErrorCode::kUsage, "the tensors together are too large", path);
    }
    separate();
    header += fmt::format(
        R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(tensor.name, path),
        kSafetensorsTypes[type_index(tensor.dtype)].name, fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  header += '}';
  // Spaces, so that the data is aligned in a mapped file.
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxSafetensorsHeaderBytes) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the header has {} bytes, above the limit of {}", header.size(),
                            kMaxSafetensorsHeaderBytes),
                path);
  }
  const std::uint64_t length = header.size();
  std::string result(sizeof(length), '\0');
  std::memcpy(result.data(), &length, sizeof(length));
  return result + header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(Env& env, std::string path,
                                     std::vector<SafetensorsSpec> tensors,
                                     const SafetensorsMetadata& metadata)
    : env_(&env),
      path_(std::move(path)),
      temporary_path_(path_ + ".tmp"),
      tensors_(std::move(tensors)) {
  sort_for_file(tensors_, path_);
  const std::string header = make_header(tensors_, metadata, path_);
  for (const SafetensorsSpec& tensor : tensors_) missing_bytes_ += bytes_of(tensor, path_);
  file_ = env_->open_for_write(temporary_path_, OpenMode::kTruncate);
  try {
    file_->append(std::as_bytes(std::span(header)));
  } catch (...) {
    discard();
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() { discard(); }

void SafetensorsWriter::discard() noexcept {
  if (!file_) return;
  file_.reset();
  try {
    env_->remove_file(temporary_path_);
  } catch (const std::exception&) {
    // The error that brought us here is the one to report.
  }
}

void SafetensorsWriter::append(std::span<const std::byte> data) {
  TESSERA_CHECK(file_ != nullptr, "{} is finished", path_);
  TESSERA_CHECK(data.size() <= missing_bytes_, "{}: {} bytes are left, {} were given", path_,
                missing_bytes_, data.size());
  file_->append(data);
  missing_bytes_ -= data.size();
}

void SafetensorsWriter::finish() {
  TESSERA_CHECK(file_ != nullptr, "{} is finished", path_);
  TESSERA_CHECK(missing_bytes_ == 0, "{}: {} bytes of data are missing", path_, missing_bytes_);
  file_->sync();
  file_->close();
  env_->rename(temporary_path_, path_);
  file_.reset();
  env_->sync_directory(parent_path(path_));
}

void write_safetensors(Env& env, const std::string& path,
                       const std::vector<SafetensorsTensor>& tensors,
                       const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsSpec> specs;
  std::map<std::string_view, std::span<const std::byte>> data;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::uint64_t bytes = bytes_of(tensor.spec, path);
    if (tensor.data.size() != bytes) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("tensor '{}' needs {} bytes of data, {} were given", tensor.spec.name,
                              bytes, tensor.data.size()),
                  path);
    }
    specs.push_back(tensor.spec);
    data.emplace(tensor.spec.name, tensor.data);
  }
  SafetensorsWriter writer(env, path, std::move(specs), metadata);
  for (const SafetensorsSpec& spec : writer.order()) writer.append(data.at(spec.name));
  writer.finish();
}

}  // namespace tessera
