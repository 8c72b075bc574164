#include "config/yaml_tree.hpp"

#include <tessera/error.hpp>

#include <string>

#include <catch2/catch.hpp>

namespace tessera::config {

namespace {

std::string parse_problem(const std::string& text) {
  try {
    parse_yaml(text, "c.yaml");
    return {};
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUsage);
    return error.what();
  }
}

void contains(const std::string& text, const std::string& part) {
  INFO("'" << part << "' in '" << text << "'");
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("the tree keeps lines, quotes and kinds") {
  const YamlPointer root =
      parse_yaml("a: 1\nb:\n  c: '2'\n  d: [x, \"y\"]\ne: ~\nf: |\n  t\n", "c");
  REQUIRE(root != nullptr);
  REQUIRE(root->kind == YamlNode::Kind::kMap);
  CHECK(root->find("a")->place.line == 1);
  CHECK_FALSE(root->find("a")->value->quoted);
  const YamlNode& b = *root->find("b")->value;
  CHECK(b.find("c")->place.line == 3);
  CHECK(b.find("c")->value->quoted);
  CHECK(b.find("d")->value->items.size() == 2);
  CHECK(root->find("e")->value->kind == YamlNode::Kind::kNull);
  CHECK(root->find("f")->value->quoted);
  CHECK(root->find("z") == nullptr);
}

TEST_CASE("an alias shares the value of its anchor") {
  const YamlPointer root = parse_yaml("a: &x {b: 1}\nc: *x\nd: [*x, *x]\n", "c");
  CHECK(root->find("c")->value == root->find("a")->value);
  CHECK(root->find("d")->value->items[1] == root->find("a")->value);
}

TEST_CASE("nested aliases are not expanded") {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) text += (k > 0 ? ", " : "") + before;
    text += "]\n";
  }
  CHECK(parse_yaml(text, "c")->entries.size() == 20);
}

TEST_CASE("duplicate keys are refused at any depth, naming both lines") {
  contains(parse_problem("a: 1\nb: 2\na: 3\n"), "first on line 1, again on line 3");
  contains(parse_problem("a: 1\n\"a\": 2\n"), "duplicate key 'a'");
  contains(parse_problem("a: {b: 1, b: 2}\n"), "[c.yaml:1: a.b]");
  contains(parse_problem("a:\n  b:\n    c: 1\n    d: 2\n    c: 1\n"), "[c.yaml:5: a.b.c]");
  contains(parse_problem("a:\n  - x: 1\n    x: 2\n"), "first on line 2, again on line 3");
  contains(parse_problem("a: {b: 1}\nc: 2\na: {d: 1}\n"), "[c.yaml:3: a]");
  contains(parse_problem("? a\n: 1\na: 2\n"), "duplicate key 'a'");
}

TEST_CASE("merge keys are refused, naming both lines") {
  const std::string problem = parse_problem("a: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n");
  contains(problem, "merge key");
  contains(problem, "line 1");
  contains(problem, "[c.yaml:3: c.<<]");
}

TEST_CASE("what is no single plain YAML document is refused") {
  contains(parse_problem("a: 1\n---\nb: 2\n"), "more than one YAML document");
  contains(parse_problem("a:\n\tb: 1\n"), "tab in the indentation of line 2");
  contains(parse_problem("a:\n  b: 1\n\tc: 2\n"), "tab in the indentation of line 3");
  contains(parse_problem("a: [1, 2\n"), "YAML syntax");
  contains(parse_problem("a: b: c\n"), "[c.yaml:1]");
  contains(parse_problem("a: 1\n  b: 2\n"), "[c.yaml:2]");
  contains(parse_problem("a: \"x\n"), "quote is not closed");
  contains(parse_problem("a: \"x"), "YAML syntax");
  contains(parse_problem("a: 'x\nb: 1\nc: 'y'\n"), "[c.yaml:");
  contains(parse_problem("a: \"x\nb: \\\"1\nc: y\"\n"), "[c.yaml:1: a]");
  contains(parse_problem("\xef\xbb\xbf"
                         "ü: 1\r\na: &x 'y\r\nb: 1\r\n'\r\n"),
           "[c.yaml:2: a]");
  contains(parse_problem("a: *x\n"), "alias");
  contains(parse_problem("a: [*.txt]\n"), "in quotes");
  contains(parse_problem("a: &x\n  b: *x\n"), "contains it");
  contains(parse_problem("a: !!int 5\n"), "'!!int'");
  contains(parse_problem("? [a]\n: 1\n"), "key");
  contains(parse_problem("~: 1\n"), "key");
  contains(parse_problem(std::string("a: 1\n\0b: 2\n", 11)), "control byte 0x00");
  contains(parse_problem("a: 1\n\x04\nb: 2\n"), "[c.yaml:2]");
  contains(parse_problem("a: \xff\n"), "not valid UTF-8");
  contains(parse_problem("a: \xc0\xaf\n"), "not valid UTF-8");
  contains(parse_problem("\xff\xfe"
                         "a"),
           "UTF-16");
  contains(parse_problem(std::string(200, '[')), "nested too deeply");
}

TEST_CASE("harmless variants are accepted") {
  CHECK(parse_problem("\xef\xbb\xbf"
                      "a: 1\n")
            .empty());
  CHECK(parse_problem("a: 1\r\nb: 2\r\n").empty());
  CHECK(parse_problem("---\na: 1\n...\n").empty());
  CHECK(parse_problem("a:\t1\n").empty());
  CHECK(parse_problem("a: ü\n").empty());
  CHECK(parse_problem("a: 'it''s'\nb: \"\\\"\"\nc: &x 'y'\nd: !!str \"z\"\ne: ! \"'\"\n").empty());
  CHECK(parse_yaml("", "c") == nullptr);
  CHECK(parse_yaml("# only a comment\n", "c") == nullptr);
  CHECK(parse_yaml("\xef\xbb\xbf"
                   "a: 1\n",
                   "c")
            ->find("a") != nullptr);
}

}  // namespace tessera::config
