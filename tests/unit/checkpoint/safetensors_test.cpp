// The safetensors reader and writer; expected bytes come from the format's own implementation.
#include "checkpoint/safetensors.hpp"

#include <tessera/error.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/faulty_env.hpp"
#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string read_bytes(const std::string& path) {
  std::ostringstream result;
  result << std::ifstream(path, std::ios::binary).rdbuf();
  return result.str();
}

/// A file with the given header and `data_bytes` bytes 0, 1, 2 … of data.
std::string make_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string result(8, '\0');
  std::memcpy(result.data(), &length, 8);
  result += header;
  for (std::size_t i = 0; i < data_bytes; ++i) result += static_cast<char>(i);
  return result;
}

std::string length_bytes(std::uint64_t length) {
  std::string result(8, '\0');
  std::memcpy(result.data(), &length, 8);
  return result;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + '}';
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

const std::string kGolden = TESSERA_SOURCE_DIR "/tests/golden/";

}  // namespace

TEST_CASE("A safetensors file that is valid loads") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  const std::string u8 = tensor("a", "U8", "[3]", "[0,3]");
  struct Case {
    std::string what;
    std::string header;
    std::size_t data_bytes;
    std::size_t tensors;
  };
  const auto padded = [](std::string header, std::size_t bytes) {
    header.resize(bytes, ' ');
    return header;
  };
  const std::vector<Case> cases = {
      {"no tensor", "{}", 0, 0},
      {"a header of 7 bytes", "{}     ", 0, 0},
      {"one tensor", '{' + u8 + '}', 3, 1},
      {"padded with spaces", '{' + u8 + "}        ", 3, 1},
      {"spaces within",
       "{ \"a\" : { \"dtype\" : \"U8\", \"shape\" : [ 3 ], \"data_offsets\" : "
       "[ 0, 3 ] } }",
       3, 1},
      {"a header of 99999 bytes", padded('{' + u8 + '}', 99999), 3, 1},
      {"a header of 100000 bytes", padded('{' + u8 + '}', 100000), 3, 1},
      {"fields in another order", R"({"a":{"data_offsets":[0,3],"shape":[3],"dtype":"U8"}})", 3, 1},
      {"metadata", R"({"__metadata__":{"format":"pt","":""},)" + u8 + '}', 3, 1},
      {"metadata last", '{' + u8 + R"(,"__metadata__":{}})", 3, 1},
      {"a scalar", '{' + tensor("s", "F32", "[]", "[0,4]") + '}', 4, 1},
      {"no elements", '{' + tensor("z", "F32", "[0]", "[0,0]") + '}', 0, 1},
      {"no elements, huge otherwise",
       '{' + tensor("z", "F32", "[0,4611686018427387904]", "[0,0]") + '}', 0, 1},
      {"no elements between others",
       '{' + tensor("b", "U8", "[1]", "[2,3]") + ',' + tensor("z", "F64", "[5,0]", "[2,2]") + ',' +
           tensor("y", "I64", "[0]", "[3,3]") + ',' + tensor("a", "U8", "[2]", "[0,2]") + '}',
       3, 4},
      {"not in the order of the data",
       '{' + tensor("b", "U8", "[1]", "[2,3]") + ',' + tensor("a", "U8", "[2]", "[0,2]") + '}', 3,
       2},
      {"an unaligned offset",
       '{' + tensor("a", "U8", "[1]", "[0,1]") + ',' + tensor("b", "F32", "[1]", "[1,5]") + '}', 5,
       2},
      {"an escaped name", '{' + tensor("\\u00e9\\n\\\"", "U8", "[1]", "[0,1]") + '}', 1, 1},
      {"an empty name", '{' + tensor("", "U8", "[1]", "[0,1]") + '}', 1, 1},
      {"types that Tessera has not",
       '{' + tensor("a", "BOOL", "[2]", "[0,2]") + ',' + tensor("b", "F4", "[4]", "[2,4]") + ',' +
           tensor("c", "U64", "[1]", "[4,12]") + '}',
       12, 3},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    write_bytes(path, make_file(c.header, c.data_bytes));
    const SafetensorsFile file = SafetensorsFile::open(Env::posix(), path);
    CHECK(file.entries().size() == c.tensors);
    std::uint64_t covered = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      CHECK(entry.begin == covered);
      covered = entry.end;
      if (!entry.dtype) continue;
      std::vector<std::byte> data(entry.bytes());
      file.read(entry.name, data);
      for (std::size_t i = 0; i < data.size(); ++i) {
        CHECK(data[i] == static_cast<std::byte>(entry.begin + i));
      }
    }
    CHECK(covered == c.data_bytes);
  }
}

TEST_CASE("A safetensors file that is not valid is refused with file and reason") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "damaged.safetensors";
  const std::string u8 = tensor("a", "U8", "[3]", "[0,3]");
  struct Case {
    std::string reason;  // part of the message
    std::string bytes;
  };
  const auto one = [&](const std::string& shape, const std::string& offsets, std::size_t data) {
    return make_file('{' + tensor("a", "F32", shape, offsets) + '}', data);
  };
  const auto head = [](const std::string& header) { return make_file(header, 0); };
  std::string deep = R"({"a":)";
  deep.append(200000, '[');
  std::string many_dimensions = "[1";
  for (int i = 0; i < 64; ++i) many_dimensions += ",1";
  many_dimensions += ']';
  const std::vector<Case> cases = {
      {"only 0 bytes", ""},
      {"only 7 bytes", std::string(7, '\0')},
      {"does not begin with '{'", head("")},
      {"not valid JSON", head("{\"abc\":")},  // 7 bytes
      {"a header of 3 bytes does not fit", length_bytes(3) + "{}"},
      {"a header of 99999 bytes does not fit", length_bytes(99999) + "{}"},
      {"a header of 100000 bytes does not fit", length_bytes(100000) + "{}"},
      {"above the limit", length_bytes(100'000'001) + "{}"},
      {"above the limit", length_bytes(std::uint64_t{1} << 63) + "{}"},
      {"above the limit", length_bytes(~std::uint64_t{0}) + "{}"},
      {"above the limit", "{\"a\":{\"dtype\""},  // JSON alone, without the length
      // JSON
      {"does not begin with '{'", head(" {}")},
      {"does not begin with '{'", head("\xEF\xBB\xBF{}")},
      {"does not begin with '{'", head("[]")},
      {"not valid JSON", head("{")},
      {"not valid JSON", head("{}x")},
      {"not valid JSON", head("{}{}")},
      {"a zero byte", head(std::string("{}\0", 3))},
      {"a zero byte", head(std::string("{\"a\0b\":1}", 9))},
      {"not valid JSON", head(R"({"a")")},
      {"not valid JSON", head(R"({"a":})")},
      {"not valid JSON", head("{/**/}")},
      {"not valid JSON", head(R"({"a\x":1})")},
      {"not valid JSON", head("{\"\xff\":1}")},
      {"not valid JSON", head("{\"\\ud800\":1}")},
      {"not valid JSON", make_file('{' + u8 + ",}", 3)},
      {"is an array, not an object", head(deep)},
      // names
      {"'a' is given twice", make_file('{' + u8 + ',' + u8 + '}', 3)},
      {"'a' is given twice",
       make_file('{' + u8 + ',' + tensor("\\u0061", "U8", "[0]", "[3,3]") + '}', 3)},
      {"'__metadata__' is given twice", head(R"({"__metadata__":{},"__metadata__":{}})")},
      {"metadata key 'a' is given twice", head(R"({"__metadata__":{"a":"1","a":"2"}})")},
      {"'a' of '__metadata__' is or contains a number", head(R"({"__metadata__":{"a":1}})")},
      {"'a' of '__metadata__' is or contains an object", head(R"({"__metadata__":{"a":{}}})")},
      {"'__metadata__' is null", head(R"({"__metadata__":null})")},
      // fields
      {"'a' is a number, not an object", head(R"({"a":1})")},
      {"'a' is a string, not an object", head(R"({"a":"b"})")},
      {"tensor 'a' has no 'dtype'", head(R"({"a":{}})")},
      {"tensor 'a' has no 'shape'", head(R"({"a":{"dtype":"U8"}})")},
      {"tensor 'a' has no 'data_offsets'", head(R"({"a":{"dtype":"U8","shape":[]}})")},
      {"the field 'dtype' twice", head(R"({"a":{"dtype":"U8","dtype":"U8"}})")},
      {"an unknown field 'x'", head(R"({"a":{"x":1}})")},
      {"'dtype' of 'a' is or contains a number", head(R"({"a":{"dtype":1}})")},
      {"'dtype' of 'a' is or contains an array", head(R"({"a":{"dtype":["U8"]}})")},
      {"'shape' of 'a' is or contains a number", head(R"({"a":{"shape":1}})")},
      {"'shape' of 'a' is or contains an object", head(R"({"a":{"shape":[{}]}})")},
      {"'shape' of 'a' is or contains an array", head(R"({"a":{"shape":[[1]]}})")},
      {"0 data_offsets", one("[3]", "[]", 0)},
      {"1 data_offsets", one("[3]", "[12]", 12)},
      {"3 data_offsets", one("[3]", "[0,12,12]", 12)},
      // numbers
      {"a negative number", one("[-3]", "[0,12]", 12)},
      {"a negative number", one("[3]", "[-12,0]", 12)},
      {"not a 64-bit integer", one("[3.0]", "[0,12]", 12)},
      {"not a 64-bit integer", one("[3]", "[0,12e0]", 12)},
      {"not a 64-bit integer", one("[3]", "[0,18446744073709551616]", 12)},
      {"a dimension of 9223372036854775808", one("[9223372036854775808]", "[0,12]", 12)},
      {"overflows", one("[4294967296,4294967296]", "[0,12]", 12)},
      {"overflows", one("[9223372036854775807]", "[0,12]", 12)},
      {"overflows", one("[4294967296,4294967296,0]", "[0,0]", 0)},
      {"more than 64 dimensions", one(many_dimensions, "[0,4]", 4)},
      // type
      {"unknown type 'F33'", make_file('{' + tensor("a", "F33", "[3]", "[0,12]") + '}', 12)},
      {"unknown type 'f32'", make_file('{' + tensor("a", "f32", "[3]", "[0,12]") + '}', 12)},
      {"unknown type ''", make_file('{' + tensor("a", "", "[3]", "[0,12]") + '}', 12)},
      {"whole byte", make_file('{' + tensor("a", "F4", "[3]", "[0,2]") + '}', 2)},
      {"needs 24 bytes but has 12", make_file('{' + tensor("a", "F64", "[3]", "[0,12]") + '}', 12)},
      {"needs 6 bytes but has 12", make_file('{' + tensor("a", "F16", "[3]", "[0,12]") + '}', 12)},
      {"needs 4 bytes but has 0", one("[]", "[0,0]", 0)},
      // data
      {"before it begins", one("[3]", "[12,0]", 12)},
      {"cut short", one("[3]", "[0,12]", 11)},
      {"cut short", one("[3]", "[0,12]", 0)},
      {"1 bytes follow", one("[3]", "[0,12]", 13)},
      {"3 bytes follow", head("{}") + "abc"},
      {"gap of 1 bytes before tensor 'a'", one("[3]", "[1,13]", 13)},
      {"gap of 2 bytes before tensor 'b'",
       make_file('{' + u8 + ',' + tensor("b", "U8", "[1]", "[5,6]") + '}', 6)},
      {"'b' overlaps", make_file('{' + u8 + ',' + tensor("b", "U8", "[2]", "[2,4]") + '}', 4)},
      {"'b' overlaps", make_file('{' + u8 + ',' + tensor("b", "U8", "[3]", "[0,3]") + '}', 3)},
      {"overlaps", make_file('{' + u8 + ',' + tensor("b", "U8", "[1]", "[1,2]") + '}', 3)},
      {"gap", one("[3]", "[18446744073709551603,18446744073709551615]", 12)},
      {"needs 12 bytes but has 18446744073709551615", one("[3]", "[0,18446744073709551615]", 12)},
  };
  for (const Case& c : cases) {
    INFO(c.reason << " in " << c.bytes.substr(0, 200));
    write_bytes(path, c.bytes);
    std::string message;
    try {
      SafetensorsFile::open(Env::posix(), path);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kData);
      message = error.what();
    }
    CHECK_THAT(message, Catch::Contains(c.reason));
    CHECK_THAT(message, Catch::Contains(path));
    CHECK(message.size() < 600);
  }
  CHECK_THROWS_AS(SafetensorsFile::open(Env::posix(), directory / "missing"), Error);
}

TEST_CASE("A safetensors header above the limit is refused though the file has it") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "large.safetensors";
  write_bytes(path, length_bytes(kMaxSafetensorsHeaderBytes + 1) + "{}");
  std::filesystem::resize_file(path, kMaxSafetensorsHeaderBytes + 100);  // sparse
  CHECK_THROWS_WITH(SafetensorsFile::open(Env::posix(), path), Catch::Contains("above the limit"));
}

TEST_CASE("A text from the file cannot break a message") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  write_bytes(
      path,
      make_file('{' + tensor("x\\n" + std::string(5000, 'y'), "F33", "[]", "[0,4]") + '}', 4));
  try {
    SafetensorsFile::open(Env::posix(), path);
    FAIL("opened");
  } catch (const Error& error) {
    CHECK_THAT(error.message(), Catch::Contains("x?yyyy"));
    CHECK(error.message().find('\n') == std::string::npos);
    CHECK(error.message().size() < 300);
  }
}

TEST_CASE("Damaged safetensors files never do more than raise an error") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "fuzz.safetensors";
  const std::string valid = make_file(
      R"({"__metadata__":{"format":"pt"},)" + tensor("w", "F32", "[2,3]", "[0,24]") + ',' +
          tensor("h", "BF16", "[5]", "[24,34]") + ',' + tensor("z", "I64", "[0]", "[34,34]") + ',' +
          tensor("s", "U8", "[]", "[34,35]") + "}  ",
      35);
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const std::string useful = R"({}[]":,0123456789- eE.\u)";
  int opened = 0;
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = valid;
    const std::size_t changes = 1 + below(3);
    for (std::size_t change = 0; change < changes && !bytes.empty(); ++change) {
      const std::size_t place = below(bytes.size());
      switch (below(6)) {
        case 0: bytes[place] = static_cast<char>(random()); break;
        case 1: bytes[place] = useful[below(useful.size())]; break;
        case 2: bytes.insert(place, 1, useful[below(useful.size())]); break;
        case 3: bytes.erase(place, 1 + below(4)); break;
        case 4: bytes.resize(place); break;
        default: {
          const std::size_t from = below(bytes.size());
          bytes.insert(place, bytes.substr(from, 1 + below(40)));
        }
      }
    }
    // Mostly with a length that fits, so that the header itself is reached.
    if (bytes.size() > 8 && below(4) != 0) {
      const std::size_t end = bytes.rfind('}');
      if (end != std::string::npos && end > 8) {
        const std::uint64_t length = end + 1 - 8;
        std::memcpy(bytes.data(), &length, 8);
      }
    }
    write_bytes(path, bytes);
    try {
      const SafetensorsFile file = SafetensorsFile::open(Env::posix(), path);
      ++opened;
      std::uint64_t covered = 0;
      for (const SafetensorsEntry& entry : file.entries()) {
        covered += entry.bytes();
        std::vector<std::byte> data(entry.bytes());
        if (entry.dtype) file.read(entry.name, data);
      }
      if (covered > bytes.size()) FAIL("more data than the file has");
    } catch (const Error& error) {
      ++refused;
      if (error.code() != ErrorCode::kData) FAIL(error.what());
    }
  }
  CHECK(opened > 10);
  CHECK(refused > 1000);
}

TEST_CASE("Safetensors data is read in whole, in part and by type") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  const std::vector<float> weights = {1.0F, -2.5F, 3.25F};
  const std::vector<std::int32_t> tokens = {7, -100};
  write_bytes(path, make_file('{' + tensor("w", "F32", "[3]", "[0,12]") + ',' +
                                  tensor("t", "I32", "[1,2]", "[12,20]") + ',' +
                                  tensor("b", "BOOL", "[1]", "[20,21]") + '}',
                              0) +
                        std::string(reinterpret_cast<const char*>(weights.data()), 12) +
                        std::string(reinterpret_cast<const char*>(tokens.data()), 8) + '\1');
  const SafetensorsFile file = SafetensorsFile::open(Env::posix(), path);
  CHECK(file.values<float>("w") == weights);
  CHECK(file.values<std::int32_t>("t") == tokens);
  CHECK(file.at("t").shape == std::vector<std::int64_t>{1, 2});
  CHECK(file.at("b").stored_type == "BOOL");
  CHECK(file.find("x") == nullptr);
  float second = 0.0F;
  file.read("w", 4, std::as_writable_bytes(std::span(&second, 1)));
  CHECK(second == -2.5F);

  CHECK_THROWS_WITH(file.at("x"), Catch::Contains("no tensor 'x'") && Catch::Contains(path));
  CHECK_THROWS_WITH(file.values<std::int32_t>("w"), Catch::Contains("is fp32, not int32"));
  CHECK_THROWS_WITH(file.values<std::uint8_t>("b"), Catch::Contains("BOOL, which is not"));
  std::vector<std::byte> wrong(8);
  CHECK_THROWS_AS(file.read("w", wrong), Error);
  CHECK_THROWS_AS(file.read("w", 8, wrong), Error);
  CHECK_THROWS_AS(file.read("w", 13, std::span(wrong).first(0)), Error);

  std::filesystem::resize_file(path, 30);  // cut short behind our back
  std::vector<std::byte> whole(12);
  CHECK_THROWS_AS(file.read("w", whole), Error);
}

TEST_CASE("The safetensors writer gives the bytes of the reference implementation") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  const std::vector<float> f32 = {1.0F};
  const std::vector<double> f64 = {1.0};
  const std::vector<std::int64_t> i64 = {1};
  const std::vector<std::int32_t> i32 = {1};
  const std::vector<std::uint16_t> bf16 = {0x3f80};
  const std::vector<std::uint16_t> f16 = {0x3c00};
  const std::vector<std::uint8_t> e4m3 = {0x38};
  const std::vector<std::uint8_t> e5m2 = {0x3c};
  const std::vector<std::uint8_t> one = {1};
  write_safetensors(Env::posix(), path,
                    {{{"b", DType::kF32, {1}}, bytes_of(f32)},
                     {{"a/\"\x7f\xc3\xa9\n\xe2\x80\xa8", DType::kI32, {1}}, bytes_of(i32)},
                     {{"c", DType::kBF16, {1}}, bytes_of(bf16)},
                     {{"d", DType::kF64, {1}}, bytes_of(f64)},
                     {{"e", DType::kF16, {1}}, bytes_of(f16)},
                     {{"f", DType::kI64, {1}}, bytes_of(i64)},
                     {{"g", DType::kU8, {1}}, bytes_of(one)},
                     {{"h", DType::kI8, {1}}, bytes_of(one)},
                     {{"i", DType::kF8E4M3, {1}}, bytes_of(e4m3)},
                     {{"j", DType::kF8E5M2, {1}}, bytes_of(e5m2)},
                     {{"z", DType::kF32, {0}}, {}},
                     {{"s", DType::kF32, {}}, bytes_of(f32)}},
                    {{"a", "\x01\"\\\t"}});
  std::string expected = R"({"__metadata__":{"a":"\u0001\"\\\t"},)"
                         R"("f":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                         R"("d":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
                         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]},)"
                         R"("s":{"dtype":"F32","shape":[],"data_offsets":[20,24]},)"
                         R"("z":{"dtype":"F32","shape":[0],"data_offsets":[24,24]},)"
                         "\"a/\\\"\x7f\xc3\xa9\\n\xe2\x80\xa8\":"
                         R"({"dtype":"I32","shape":[1],"data_offsets":[24,28]},)"
                         R"("c":{"dtype":"BF16","shape":[1],"data_offsets":[28,30]},)"
                         R"("e":{"dtype":"F16","shape":[1],"data_offsets":[30,32]},)"
                         R"("i":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[32,33]},)"
                         R"("j":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[33,34]},)"
                         R"("h":{"dtype":"I8","shape":[1],"data_offsets":[34,35]},)"
                         R"("g":{"dtype":"U8","shape":[1],"data_offsets":[35,36]}} )";
  REQUIRE(expected.size() == 0x2c8);
  expected = length_bytes(expected.size()) + expected;
  expected += std::string("\1\0\0\0\0\0\0\0\0\0\0\0\0\0\xf0\x3f", 16);
  expected += std::string("\0\0\x80\x3f\0\0\x80\x3f\1\0\0\0\x80\x3f\0\x3c\x38\x3c\1\1", 20);
  CHECK(read_bytes(path) == expected);

  const SafetensorsFile file = SafetensorsFile::open(Env::posix(), path);
  CHECK(file.metadata() == SafetensorsMetadata{{"a", "\x01\"\\\t"}});
  CHECK(file.values<std::int32_t>("a/\"\x7f\xc3\xa9\n\xe2\x80\xa8") == i32);

  write_safetensors(Env::posix(), path, {});
  CHECK(read_bytes(path) == length_bytes(8) + "{}      ");
}

TEST_CASE("A safetensors file of another program is written back byte for byte") {
  const testing::TemporaryDirectory directory;
  for (const std::string name : {"llama", "llama_tied", "gpt2", "mixtral"}) {
    for (const std::string kind : {"/model.safetensors", "/golden.safetensors"}) {
      INFO(name << kind);
      const SafetensorsFile file = SafetensorsFile::open(Env::posix(), kGolden + name + kind);
      std::vector<SafetensorsSpec> specs;
      for (const SafetensorsEntry& entry : file.entries()) {
        specs.insert(specs.begin(), {entry.name, *entry.dtype, entry.shape});
      }
      const std::string path = directory / "copy.safetensors";
      SafetensorsWriter writer(Env::posix(), path, specs, file.metadata());
      for (const SafetensorsSpec& spec : writer.order()) {
        std::vector<std::byte> data(file.at(spec.name).bytes());
        file.read(spec.name, data);
        // In two pieces.
        writer.append(std::span(data).first(data.size() / 3));
        writer.append(std::span(data).subspan(data.size() / 3));
      }
      writer.finish();
      CHECK(read_bytes(path) == read_bytes(kGolden + name + kind));
    }
  }
}

TEST_CASE("The safetensors writer refuses what cannot be a file") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  const std::vector<float> data = {1.0F, 2.0F};
  const auto write = [&](const std::vector<SafetensorsTensor>& tensors,
                         const SafetensorsMetadata& metadata = {}) {
    try {
      write_safetensors(Env::posix(), path, tensors, metadata);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUsage);
      CHECK(error.context() == path);
      return error.message();
    }
    return std::string("written");
  };
  using Catch::Contains;
  const auto f32 = [](std::string name, std::vector<std::int64_t> shape) {
    return SafetensorsSpec{std::move(name), DType::kF32, std::move(shape)};
  };
  CHECK_THAT(write({{f32("a", {3}), bytes_of(data)}}), Contains("needs 12 bytes"));
  CHECK_THAT(write({{f32("a", {-2}), bytes_of(data)}}), Contains("impossible shape"));
  CHECK_THAT(write({{f32("a", {1LL << 62, 4}), bytes_of(data)}}), Contains("impossible shape"));
  CHECK_THAT(write({{f32("a", {2}), bytes_of(data)}, {f32("a", {2}), bytes_of(data)}}),
             Contains("given twice"));
  CHECK_THAT(write({{f32("__metadata__", {2}), bytes_of(data)}}), Contains("reserved"));
  CHECK_THAT(write({{f32("\xff", {2}), bytes_of(data)}}), Contains("UTF-8"));
  CHECK_THAT(write({}, {{"a", "\xc3"}}), Contains("UTF-8"));
  CHECK_THAT(write({{f32("a", std::vector<std::int64_t>(65, 1)), bytes_of(data)}}),
             Contains("64 dimensions") || Contains("needs 4 bytes"));
  CHECK(Env::posix().list_directory(directory.path()).empty());
  CHECK_THROWS_AS(write_safetensors(Env::posix(), directory / "no/such/a", {}), Error);
}

TEST_CASE("An unfinished safetensors file leaves the old one and nothing else") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  write_safetensors(Env::posix(), path, {});
  const std::string before = read_bytes(path);
  const std::vector<float> data = {1.0F, 2.0F};
  {
    SafetensorsWriter writer(Env::posix(), path, {{"a", DType::kF32, {2}}}, {});
    writer.append(bytes_of(data).first(4));
    CHECK_THROWS_AS(writer.finish(), Error);  // data is missing
    CHECK_THROWS_AS(writer.append(bytes_of(data)), Error);
  }
  CHECK(read_bytes(path) == before);
  CHECK(Env::posix().list_directory(directory.path()) == std::vector<std::string>{"a.safetensors"});
}

TEST_CASE("A full or broken disk leaves the old safetensors file and nothing else") {
  using testing::FileOperation;
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  write_safetensors(Env::posix(), path, {});
  const std::string before = read_bytes(path);
  const std::vector<float> data = {1.0F, 2.0F};
  struct Case {
    FileOperation operation;
    int nth;
  };
  for (const Case& c : {Case{FileOperation::kOpen, 0}, Case{FileOperation::kWrite, 0},
                        Case{FileOperation::kWrite, 1}, Case{FileOperation::kSync, 0},
                        Case{FileOperation::kClose, 0}, Case{FileOperation::kRename, 0}}) {
    INFO(static_cast<int>(c.operation) << " number " << c.nth);
    testing::FaultyEnv env(Env::posix());
    env.fail_nth(c.operation, c.nth, ENOSPC, {}, 3);
    CHECK_THROWS_WITH(write_safetensors(env, path, {{{"a", DType::kF32, {2}}, bytes_of(data)}}),
                      Catch::Contains("No space left") && Catch::Contains("a.safetensors"));
    CHECK(read_bytes(path) == before);
    CHECK(env.list_directory(directory.path()) == std::vector<std::string>{"a.safetensors"});
  }
}

TEST_CASE("Opening a safetensors file reads its header only") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "a.safetensors";
  const std::string header = '{' + tensor("a", "U8", "[1000]", "[0,1000]") + '}';
  write_bytes(path, make_file(header, 1000));
  testing::FaultyEnv env(Env::posix());
  const SafetensorsFile file = SafetensorsFile::open(env, path);
  CHECK(env.bytes_read() == 8 + header.size());
  std::vector<std::byte> part(10);
  file.read("a", 500, part);
  CHECK(env.bytes_read() == 8 + header.size() + 10);
}

}  // namespace tessera
