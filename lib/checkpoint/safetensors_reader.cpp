#include <tessera/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/safetensors_types.hpp"

namespace tessera {

static_assert(std::endian::native == std::endian::little, "data is stored little endian");

namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

/// Text from a file as it may stand in a message: short, on one line.
std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string result(text.substr(0, kLongest));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > kLongest) result += "...";
  return result;
}

/// Takes the header from the JSON parser event by event: a parsed document would have lost names
/// that are given twice, and the order of events bounds what is allocated. Each function returns
/// whether to go on.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
  std::string problem;  // set where a function returned false

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart: place_ = Place::kHeader; return true;
      case Place::kHeader:
        place_ = name_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
        return true;
      default: return unexpected("an object");
    }
  }

  bool key(string_t& text) override {
    switch (place_) {
      case Place::kHeader:
        if (!names_.insert(text).second) return refuse("name '{}' is given twice", printable(text));
        name_ = std::move(text);
        if (name_ != kMetadataKey) entries.emplace_back().name = name_;
        seen_ = {};
        offsets_ = 0;
        return true;
      case Place::kMetadata:
        field_ = std::move(text);
        if (metadata.contains(field_)) {
          return refuse("metadata key '{}' is given twice", printable(field_));
        }
        return true;
      default: {  // Place::kTensor; arrays have no keys
        const auto found = std::find(kFields.begin(), kFields.end(), text);
        if (found == kFields.end()) {
          return refuse("tensor '{}' has an unknown field '{}'", printable(name_), printable(text));
        }
        if (std::exchange(seen_[static_cast<std::size_t>(found - kFields.begin())], true)) {
          return refuse("tensor '{}' has the field '{}' twice", printable(name_), text);
        }
        field_ = std::move(text);
        return true;
      }
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (std::size_t i = 0; i < kFields.size(); ++i) {
        if (!seen_[i]) return refuse("tensor '{}' has no '{}'", printable(name_), kFields[i]);
      }
      if (offsets_ != 2) {
        return refuse("tensor '{}' has {} data_offsets, not 2", printable(name_), offsets_);
      }
    }
    place_ = place_ == Place::kHeader ? Place::kEnd : Place::kHeader;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      metadata.emplace(field_, std::move(text));
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") return unexpected("a string");
    entries.back().stored_type = std::move(text);
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      auto& shape = entries.back().shape;
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return refuse("tensor '{}' has a dimension of {}", printable(name_), value);
      }
      if (shape.size() == kMaxSafetensorsRank) {
        return refuse("tensor '{}' has more than {} dimensions", printable(name_), shape.size());
      }
      shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_ < 2) (offsets_ == 0 ? entries.back().begin : entries.back().end) = value;
      ++offsets_;
      return true;
    }
    return unexpected("a number");
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return refuse("the header is not valid JSON near its byte {}", position);
  }

 private:
  enum class Place { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };
  static constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};

  template <typename... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    problem = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  bool unexpected(std::string_view what) {
    if (place_ == Place::kStart) return refuse("the header is {}, not an object", what);
    if (place_ == Place::kHeader)
      return refuse("'{}' is {}, not an object", printable(name_), what);
    return refuse("'{}' of '{}' is or contains {}", printable(field_), printable(name_), what);
  }

  Place place_ = Place::kStart;
  std::unordered_set<std::string> names_;
  std::string name_;   // the last key of the header
  std::string field_;  // the last key of a tensor or of the metadata
  std::array<bool, 3> seen_{};
  std::size_t offsets_ = 0;
};

/// Fills in the type and compares shape and offsets. Returns the problem, empty where there is
/// none.
std::string check_entry(SafetensorsEntry& entry) {
  const auto type =
      std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(),
                   [&](const SafetensorsType& t) { return t.name == entry.stored_type; });
  if (type == kSafetensorsTypes.end()) {
    return fmt::format("tensor '{}' has the unknown type '{}'", printable(entry.name),
                       printable(entry.stored_type));
  }
  entry.dtype = type->dtype;
  std::uint64_t bits = type->bits;
  for (const std::int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits)) {
      return fmt::format("the size of tensor '{}' overflows", printable(entry.name));
    }
  }
  if (bits % 8 != 0) {
    return fmt::format("tensor '{}' does not end at a whole byte", printable(entry.name));
  }
  if (entry.end < entry.begin) {
    return fmt::format("tensor '{}' ends (byte {}) before it begins ({})", printable(entry.name),
                       entry.end, entry.begin);
  }
  if (entry.bytes() != bits / 8) {
    return fmt::format("tensor '{}' of type {} and shape [{}] needs {} bytes but has {}",
                       printable(entry.name), entry.stored_type, fmt::join(entry.shape, ", "),
                       bits / 8, entry.bytes());
  }
  return {};
}

/// Checks that sorted entries cover `data_bytes` exactly.
std::string check_cover(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < covered) {
      return fmt::format("the data of tensor '{}' overlaps another's", printable(entry.name));
    }
    if (entry.begin > covered) {
      return fmt::format("there is a gap of {} bytes before tensor '{}'", entry.begin - covered,
                         printable(entry.name));
    }
    covered = entry.end;
  }
  if (covered > data_bytes) {
    return fmt::format("the file is cut short: the header promises {} bytes of data, it has {}",
                       covered, data_bytes);
  }
  if (covered < data_bytes) {
    return fmt::format("{} bytes follow the last tensor", data_bytes - covered);
  }
  return {};
}

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::kI8;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kU8;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::kI64;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(Env& env, const std::string& path) {
  SafetensorsFile result;
  result.file_ = env.open_for_read(path);
  const auto refuse = [&](std::string reason) {
    throw Error(ErrorCode::kData, "not a valid safetensors file: " + std::move(reason), path);
  };

  const std::uint64_t file_bytes = result.file_->size();
  if (file_bytes < kLengthBytes) refuse(fmt::format("it has only {} bytes", file_bytes));
  std::uint64_t header_bytes = 0;
  result.file_->read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    refuse(fmt::format("a header of {} bytes is above the limit of {}", header_bytes,
                       kMaxSafetensorsHeaderBytes));
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    refuse(
        fmt::format("a header of {} bytes does not fit the file's {}", header_bytes, file_bytes));
  }
  result.data_begin_ = kLengthBytes + header_bytes;

  std::string header(header_bytes, '\0');
  result.file_->read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  // The JSON parser would take a byte order mark or white space here, and end at a zero byte.
  if (header.empty() || header.front() != '{') refuse("the header does not begin with '{'");
  if (header.find('\0') != std::string::npos) refuse("there is a zero byte in the header");
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(header, &handler)) refuse(std::move(handler.problem));

  result.metadata_ = std::move(handler.metadata);
  result.entries_ = std::move(handler.entries);
  for (SafetensorsEntry& entry : result.entries_) {
    if (std::string problem = check_entry(entry); !problem.empty()) refuse(std::move(problem));
  }
  std::sort(result.entries_.begin(), result.entries_.end(), [](const auto& a, const auto& b) {
    // Tensors without elements come before the one that begins at the same byte.
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  if (std::string problem = check_cover(result.entries_, file_bytes - result.data_begin_);
      !problem.empty()) {
    refuse(std::move(problem));
  }
  result.index_.reserve(result.entries_.size());
  for (std::size_t i = 0; i < result.entries_.size(); ++i) {
    result.index_.emplace(result.entries_[i].name, i);
  }
  return result;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    throw Error(ErrorCode::kData, fmt::format("there is no tensor '{}'", printable(name)), path());
  }
  return *entry;
}

const SafetensorsEntry& SafetensorsFile::readable(std::string_view name) const {
  const SafetensorsEntry& entry = at(name);
  if (!entry.dtype) {
    throw Error(ErrorCode::kData,
                fmt::format("tensor '{}' has type {}, which is not supported", printable(name),
                            entry.stored_type),
                path());
  }
  return entry;
}

void SafetensorsFile::read(std::string_view name, std::span<std::byte> destination) const {
  const SafetensorsEntry& entry = readable(name);
  TESSERA_CHECK(destination.size() == entry.bytes(), "tensor '{}' has {} bytes, not {}",
                printable(name), entry.bytes(), destination.size());
  file_->read(data_begin_ + entry.begin, destination);
}

void SafetensorsFile::read(std::string_view name, std::uint64_t offset,
                           std::span<std::byte> destination) const {
  const SafetensorsEntry& entry = readable(name);
  TESSERA_CHECK(offset <= entry.bytes() && destination.size() <= entry.bytes() - offset,
                "tensor '{}' has {} bytes, not {} from {} on", printable(name), entry.bytes(),
                destination.size(), offset);
  file_->read(data_begin_ + entry.begin + offset, destination);
}

template <typename T>
std::vector<T> SafetensorsFile::values(std::string_view name) const {
  const SafetensorsEntry& entry = readable(name);
  if (*entry.dtype != dtype_of<T>()) {
    throw Error(ErrorCode::kData,
                fmt::format("tensor '{}' is {}, not {}", printable(name), to_string(*entry.dtype),
                            to_string(dtype_of<T>())),
                path());
  }
  std::vector<T> result(entry.bytes() / sizeof(T));
  read(name, std::as_writable_bytes(std::span(result)));
  return result;
}

template std::vector<float> SafetensorsFile::values(std::string_view) const;
template std::vector<double> SafetensorsFile::values(std::string_view) const;
template std::vector<std::int8_t> SafetensorsFile::values(std::string_view) const;
template std::vector<std::uint8_t> SafetensorsFile::values(std::string_view) const;
template std::vector<std::int32_t> SafetensorsFile::values(std::string_view) const;
template std::vector<std::int64_t> SafetensorsFile::values(std::string_view) const;

}  // namespace tessera
