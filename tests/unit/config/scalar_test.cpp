#include "config/scalar.hpp"

#include <cstdlib>
#include <limits>
#include <string>

#include <catch2/catch.hpp>

namespace tessera::config {

TEST_CASE("integers in every accepted spelling") {
  const auto value = [](const char* text) {
    const Parsed<std::int64_t> parsed = parse_integer(text);
    INFO(text << ": " << parsed.problem);
    REQUIRE(parsed.problem.empty());
    return parsed.value;
  };
  CHECK(value("0") == 0);
  CHECK(value("42") == 42);
  CHECK(value("+7") == 7);
  CHECK(value("-7") == -7);
  CHECK(value("1e6") == 1000000);
  CHECK(value("2E3") == 2000);
  CHECK(value("5e+2") == 500);
  CHECK(value("0e99") == 0);
  CHECK(value("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  CHECK(value("-9223372036854775808") == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("texts that are no integers are refused with the reason") {
  const auto problem = [](const char* text) { return parse_integer(text).problem; };
  for (const char* text :
       {"",    "-",  "+",  "e",  "e5",  "1e",   "1e+",  "four", "1 2", "1,000",
        "--1", "5a", " 5", "5 ", "nan", ".inf", "true", "~",    "0b1", "1e5.0"}) {
    INFO(text);
    CHECK_FALSE(problem(text).empty());
  }
  CHECK(problem("1.5").find("fraction") != std::string::npos);
  CHECK(problem("2.0").find("fraction") != std::string::npos);
  CHECK(problem("10e-1").find("fraction") != std::string::npos);
  CHECK(problem("007").find("leading zeros") != std::string::npos);
  CHECK(problem("-01").find("leading zeros") != std::string::npos);
  CHECK(problem("0x10").find("decimal digits") != std::string::npos);
  CHECK(problem("0o17").find("decimal digits") != std::string::npos);
  CHECK(problem("1_000_000").find("without '_'") != std::string::npos);
  CHECK(problem("99999999999999999999").find("64 bits") != std::string::npos);
  CHECK(problem("9223372036854775808").find("64 bits") != std::string::npos);
  CHECK(problem("1e19").find("64 bits") != std::string::npos);
  CHECK(problem("1e99999999999999999999").find("64 bits") != std::string::npos);
}

TEST_CASE("numbers in every accepted spelling") {
  const auto value = [](const char* text) {
    const Parsed<double> parsed = parse_number(text);
    INFO(text << ": " << parsed.problem);
    REQUIRE(parsed.problem.empty());
    return parsed.value;
  };
  CHECK(value("1e-5") == 1e-5);
  CHECK(value("2E-5") == 2e-5);
  CHECK(value("3.0e-3") == 3e-3);
  CHECK(value(".5") == 0.5);
  CHECK(value("5.") == 5.0);
  CHECK(value("-.5") == -0.5);
  CHECK(value("+1.5E+3") == 1500.0);
  CHECK(value("10000") == 10000.0);
  CHECK(value("0") == 0.0);
  CHECK(value("0.1") == 0.1);
}

TEST_CASE("texts that are no finite numbers are refused") {
  for (const char* text : {"",       ".",     "-",        "e5",    "1e",    "nan",  ".nan", "inf",
                           ".inf",   "-.inf", "infinity", "1_000", "0x1p3", "00.5", "01",   "1e400",
                           "1e-400", "1.2.3", "1,5",      "1f",    "none",  " 1"}) {
    INFO(text);
    CHECK_FALSE(parse_number(text).problem.empty());
  }
}

TEST_CASE("booleans are true and false only") {
  CHECK(parse_boolean("true").value);
  CHECK(parse_boolean("true").problem.empty());
  CHECK_FALSE(parse_boolean("false").value);
  CHECK(parse_boolean("false").problem.empty());
  for (const char* text : {"True", "FALSE", "on", "off", "yes", "no", "y", "N", "0", "1", ""}) {
    INFO(text);
    CHECK_FALSE(parse_boolean(text).problem.empty());
  }
}

TEST_CASE("printed numbers read back to the same bits") {
  for (const double value : {0.0, 1.0, 10000.0, 0.1, 1e-5, 3e-3, 1e300, 5e-324, 1.0 / 3.0, -2.5,
                             1e16, 123456789012345680.0}) {
    const std::string text = print_number(value);
    INFO(text);
    // A YAML 1.1 reader takes a text without a point for a string or an integer.
    CHECK(text.find('.') != std::string::npos);
    CHECK(std::strtod(text.c_str(), nullptr) == value);
  }
  CHECK(print_number(1e-5) == "1.0e-05");
  CHECK(print_number(3.0) == "3.0");
}

TEST_CASE("texts are quoted where YAML would read something else") {
  CHECK(print_text("runs/moe-tiny") == "runs/moe-tiny");
  CHECK(print_text("a.txt") == "a.txt");
  for (const char* text : {"", "5", "1e5", "true", "No", "null", "~", "a: b", "*.txt", "- a", "a#b",
                           "0x10", "-x", ".5", "a b", "[a]"}) {
    INFO(text);
    CHECK(print_text(text).front() == '"');
  }
  CHECK(print_text("a\"b\\c\n") == "\"a\\\"b\\\\c\\x0a\"");
}

}  // namespace tessera::config
