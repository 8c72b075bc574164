// The parts of the format: checksums, headers, indices, manifests, and hostile versions of them.
#include <random>

#include <catch2/catch.hpp>
#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include "checkpoint/convert.hpp"
#include "checkpoint/crc32c.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/zstd_codec.hpp"
#include "checkpoint_fixture.hpp"

namespace tessera {
namespace {

using Catch::Contains;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_CASE("CRC32C gives the published values, with and without the instruction") {
  CHECK(crc32c(bytes_of("123456789")) == 0xE3069283u);
  CHECK(crc32c(bytes_of("")) == 0u);
  CHECK(crc32c(bytes_of(std::string(32, '\0'))) == 0x8A9136AAu);
  CHECK(crc32c(bytes_of(std::string(32, '\xff'))) == 0x62A8AB43u);
  std::string text;
  std::mt19937 random(1);
  for (int length = 0; length < 300; ++length) {
    CHECK(crc32c(bytes_of(text)) == crc32c_portable(bytes_of(text)));
    const std::size_t cut = text.empty() ? 0 : random() % text.size();
    CHECK(crc32c(bytes_of(text.substr(cut)), crc32c(bytes_of(text.substr(0, cut)))) ==
          crc32c(bytes_of(text)));
    text.push_back(static_cast<char>(random()));
  }
}

TEST_CASE("Header, footer and index survive the way to bytes and back") {
  const ShardHeader header{{0x0123456789abcdef, 42}, 3, 9, 4096};
  const std::string head = encode_header(header);
  CHECK(head.size() == 4096);
  const ShardHeader again = decode_header(head);
  CHECK(again.save_id == header.save_id);
  CHECK(again.shard == 3);
  CHECK(again.shards == 9);

  ShardFooter footer;
  footer.index_offset = 1ull << 40;
  footer.index_bytes = 77;
  footer.save_id = header.save_id;
  footer.shard = 3;
  footer.index_crc = 0xdeadbeef;
  const std::string foot = encode_footer(footer);
  CHECK(foot.size() == kShardFooterBytes);
  CHECK(decode_footer(foot).index_offset == 1ull << 40);
  CHECK(decode_footer(foot).index_crc == 0xdeadbeef);

  SaveId id;
  CHECK(parse_save_id(header.save_id.to_hex(), id));
  CHECK(id == header.save_id);
  CHECK_FALSE(parse_save_id("0123", id));
  CHECK_FALSE(parse_save_id(std::string(32, 'g'), id));

  CHECK(padding_bytes(4096, 4096) == 0);
  CHECK(padding_bytes(4097, 4096) == 4095);
  CHECK(padding_bytes(8190, 4096) == 2 + 4096);  // a gap too small for a frame grows by a page
  CHECK(encode_padding(8).size() == 8);
}

ShardIndex sample_index() {
  ShardIndex index;
  index.chunks.push_back({4096, 100, kChunkBytes, 1, 2});
  index.chunks.push_back({4196, 50, 24, 3, 4});
  index.chunks.push_back({4246, 10, 4, 5, 6});
  index.slices.push_back({"first", DType::kF32, Shape{1 << 20}, 5, (1 << 18) + 6, 0});
  index.slices.push_back({"none", DType::kBF16, Shape{0, 3}, 0, 0, 2});
  index.slices.push_back({"second", DType::kF32, Shape{}, 0, 1, 2});
  return index;
}

TEST_CASE("An index that contradicts itself is refused") {
  const auto refusal = [](const std::function<void(ShardIndex&)>& change) {
    ShardIndex index = sample_index();
    change(index);
    try {
      decode_index(encode_index(index), 8192);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kCheckpoint);
      return error.message();
    }
    return std::string();
  };
  CHECK(refusal([](ShardIndex&) {}) == "");
  CHECK_THAT(refusal([](auto& i) { i.chunks[0].offset = 4095; }), Contains("chunk 0"));
  CHECK_THAT(refusal([](auto& i) { i.chunks[1].offset = 4195; }), Contains("chunk 1"));
  CHECK_THAT(refusal([](auto& i) { i.chunks[2].stored_bytes = 5000; }), Contains("chunk 2"));
  CHECK_THAT(refusal([](auto& i) { i.chunks[2].offset = ~0ull - 3; }), Contains("chunk 2"));
  CHECK_THAT(refusal([](auto& i) { i.chunks[1].raw_bytes = 1u << 31; }), Contains("too large"));
  CHECK_THAT(refusal([](auto& i) { i.chunks[1].raw_bytes = 20; }), Contains("wrong size"));
  CHECK_THAT(refusal([](auto& i) { i.chunks[1].filter = static_cast<ChunkFilter>(7); }),
             Contains("unknown filter"));
  CHECK_THAT(refusal([](auto& i) { i.slices[0].first_chunk = 1; }), Contains("lacks chunks"));
  CHECK_THAT(refusal([](auto& i) { i.slices[2].count = 2; }), Contains("outside its tensor"));
  CHECK_THAT(refusal([](auto& i) { i.slices[2].first_chunk = ~0ull; }), Contains("lacks chunks"));
  CHECK_THAT(refusal([](auto& i) {
               i.slices[0].shape = Shape{1ll << 40, 1ll << 40};
             }),
             Contains("impossible shape"));
  CHECK_THAT(refusal([](auto& i) { i.slices[0].shape = Shape{-1}; }), Contains("impossible shape"));
  CHECK_THAT(refusal([](auto& i) { i.slices.pop_back(); }), Contains("chunks of no slice"));
  CHECK_THAT(refusal([](auto& i) { i.chunk_bytes = 0; }), Contains("chunk size"));
  CHECK_THAT(refusal([](auto& i) { i.chunk_bytes = 1u << 31; }), Contains("chunk size"));
}

TEST_CASE("Random damage to headers, footers and indices never crashes") {
  // Below the checksums, which would catch nearly all of it before.
  std::mt19937 random(7);
  const std::string good = encode_index(sample_index());
  const std::string head = encode_header({});
  const std::string foot = encode_footer({});
  std::size_t refused = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string bad = good;
    for (unsigned change = 0; change <= random() % 4; ++change) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    if (random() % 8 == 0) bad.resize(random() % bad.size());
    try {
      decode_index(bad, 8192);
    } catch (const Error& error) {
      refused += error.code() == ErrorCode::kCheckpoint ? 1 : 0;
    }
  }
  CHECK(refused > 15000);
  for (std::size_t length = 0; length < 64; ++length) {
    CHECK_THROWS_AS(decode_header(head.substr(0, length)), Error);
    CHECK_THROWS_AS(decode_footer(foot.substr(0, length)), Error);
    CHECK_THROWS_AS(decode_index(good.substr(0, length), 8192), Error);
  }
}

Manifest sample_manifest() {
  Manifest manifest;
  manifest.step = 12;
  manifest.save_id = {1, 2};
  manifest.run_id = "run";
  manifest.versions = {"m", "d", "c"};
  manifest.common = {{"a.b", "1"}, {"c", "[1,2,{\"x\":null}]"}};
  manifest.config = "run: {name: \"x\"}\n# \xff not UTF-8\n";
  manifest.mesh = {{"data", 2}};
  manifest.shards = {{5000, 2, 7}, {6000, 1, 8}};
  manifest.tensors = {{"t", DType::kF32, Shape{2, 3}, {{0, 4, 1, 0}, {4, 2, 0, 1}}},
                      {"u", DType::kI64, Shape{}, {{0, 1, 0, 0}}}};
  return manifest;
}

// The manifest's text after a replacement, with a commit that fits.
std::string forged(const std::string& from, const std::string& to) {
  std::string text = encode_manifest(sample_manifest());
  const std::size_t tail = text.rfind(",\n\"commit\"");
  std::string body = text.substr(0, tail);
  const std::size_t place = body.find(from);
  REQUIRE(place != std::string::npos);
  body.replace(place, from.size(), to);
  const XXH128_hash_t hash = XXH3_128bits(body.data(), body.size());
  return body + fmt::format(",\n\"commit\": \"{:016x}{:016x}\"\n}}\n", hash.high64, hash.low64);
}

TEST_CASE("A manifest survives the way to text and back") {
  const Manifest manifest = decode_manifest(encode_manifest(sample_manifest()));
  CHECK(manifest.step == 12);
  CHECK(manifest.save_id == SaveId{1, 2});
  CHECK(manifest.common == sample_manifest().common);
  CHECK(manifest.mesh.at("data") == 2);
  CHECK_THAT(manifest.config, Contains("run: {name: \"x\"}\n"));
  REQUIRE(manifest.find("t") != nullptr);
  CHECK(manifest.find("t")->slices[1].first_chunk == 1);
  CHECK(manifest.find("v") == nullptr);
  CHECK(decode_manifest(forged("\"step\": 12", "\"step\": 13")).step == 13);
  Manifest broken = sample_manifest();
  broken.common["bad"] = "{";
  CHECK_THROWS_WITH(encode_manifest(broken), Contains("'bad'"));
}

TEST_CASE("A manifest whose values are impossible is refused") {
  const auto refusal = [](const std::string& from, const std::string& to) {
    try {
      decode_manifest(forged(from, to));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kCheckpoint);
      return error.message();
    }
    return std::string("accepted");
  };
  CHECK_THAT(refusal("tessera checkpoint", "another"), Contains("another format"));
  CHECK_THAT(refusal("\"format_version\": 1", "\"format_version\": 2"), Contains("version 2"));
  CHECK_THAT(refusal("\"features\": []", "\"features\": [\"planes\"]"), Contains("planes"));
  CHECK_THAT(refusal("\"step\": 12", "\"step\": -12"), Contains("'step'"));
  CHECK_THAT(refusal("\"step\": 12", "\"step\": 1e3"), Contains("'step'"));
  CHECK_THAT(refusal("\"step\": 12", "\"step\": 99999999999999999999"), Contains("'step'"));
  CHECK_THAT(refusal("\"step\": 12", "\"stop\": 12"), Contains("lacks 'step'"));
  CHECK_THAT(refusal("\"chunk_bytes\": 1048576", "\"chunk_bytes\": 0"), Contains("chunk_bytes"));
  CHECK_THAT(refusal("\"chunk_bytes\": 1048576", "\"chunk_bytes\": 9"), Contains("chunk_bytes"));
  CHECK_THAT(refusal("\"world_size\": 2", "\"world_size\": 3"), Contains("number of shards"));
  CHECK_THAT(refusal("shard-00001-of-00002.tsr", "../../etc/passwd"), Contains("shard file"));
  CHECK_THAT(refusal("\"crc32c\":\"00000007\"", "\"crc32c\":\"7\""), Contains("crc32c"));
  CHECK_THAT(refusal("\"fp32\"", "\"fp31\""), Contains("unknown type"));
  CHECK_THAT(refusal("[2,3]", "[2,4]"), Contains("no shard"));
  CHECK_THAT(refusal("[2,3]", "[2,-3]"), Contains("'shape'"));
  CHECK_THAT(refusal("[2,3]", "[4294967296,4294967296,4294967296]"), Contains("impossible shape"));
  CHECK_THAT(refusal("[0,4,1,0]", "[0,4,2,0]"), Contains("'slices'"));
  CHECK_THAT(refusal("[0,4,1,0]", "[0,4,1,1]"), Contains("its shard has not"));
  CHECK_THAT(refusal("[0,4,1,0]", "[0,5,1,0]"), Contains("two shards"));
  CHECK_THAT(refusal("[0,4,1,0]", "[0,4,1]"), Contains("four numbers"));
  CHECK_THAT(refusal("\"name\":\"u\"", "\"name\":\"t\""), Contains("in order"));
  CHECK_THAT(refusal("\"shards\": [", "\"shards\": 3, \"x\": ["), Contains("'shards'"));
  CHECK_THAT(refusal("\"common\": {", "\"common\": [], \"x\": {"), Contains("'common'"));
  CHECK_THAT(refusal("\"step\": 12", "\"step\": 12, ]"), Contains("not JSON"));
}

TEST_CASE("Chunks survive compression, and damaged frames are refused") {
  Compressor compressor(1);
  Decompressor decompressor;
  std::mt19937 random(3);
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, std::size_t{kChunkBytes}}) {
    std::string raw(size, 'x');
    for (std::size_t i = 0; i < size; i += 3) raw[i] = static_cast<char>(random());
    const auto frame = compressor.compress(bytes_of(raw));
    std::string again(size, '\0');
    const auto target = std::as_writable_bytes(std::span(again.data(), again.size()));
    decompressor.decompress(frame, target);
    CHECK(again == raw);
    CHECK_THROWS_AS(decompressor.decompress(frame.first(frame.size() - 1), target), Error);
    CHECK_THROWS_AS(decompressor.decompress(frame, target.first(size - 1)), Error);
    CHECK_THROWS_AS(decompressor.decompress({}, target), Error);
  }
  CHECK_THROWS_WITH(Compressor(99), Contains("compression_level"));
}

TEST_CASE("Elements are converted between the floating-point types") {
  const float values[] = {0.0f, -1.5f, 65504.0f, 1e-3f, std::numeric_limits<float>::infinity()};
  std::byte half[sizeof(values)];
  float back[5];
  copy_elements(reinterpret_cast<const std::byte*>(values), DType::kF32, half, DType::kF16, 5);
  copy_elements(half, DType::kF16, reinterpret_cast<std::byte*>(back), DType::kF32, 5);
  CHECK(back[1] == -1.5f);
  CHECK(back[2] == 65504.0f);
  CHECK(back[3] == static_cast<float>(F16(1e-3f)));
  CHECK(std::isinf(back[4]));
  CHECK(can_convert(DType::kBF16, DType::kF16));
  CHECK(can_convert(DType::kI64, DType::kI64));
  CHECK_FALSE(can_convert(DType::kF64, DType::kF32));
}

}  // namespace
}  // namespace tessera
