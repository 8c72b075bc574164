#include <tessera/options.hpp>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

namespace tessera {

namespace {

// The rows that describe keys: "| `a.b` | type | default | meaning |".
std::set<std::string> key_rows(std::istream& text) {
  std::set<std::string> rows;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("| `")) rows.insert(line);
  }
  return rows;
}

}  // namespace

TEST_CASE("docs/configuration.md lists exactly the keys of the schema") {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/docs/configuration.md");
  REQUIRE(file.good());
  const std::set<std::string> written = key_rows(file);
  std::istringstream reference(config_reference());
  const std::set<std::string> generated = key_rows(reference);
  CHECK(generated.size() > 70);
  // To renew the tables: tessera config --reference
  for (const std::string& row : generated) {
    INFO("missing in the documentation: " << row);
    CHECK(written.count(row) == 1);
  }
  for (const std::string& row : written) {
    INFO("not in the schema: " << row);
    CHECK(generated.count(row) == 1);
  }
}

}  // namespace tessera
