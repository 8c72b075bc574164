#include "config/known_keys.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tessera::config {

TEST_CASE("edit distances") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("stpe", "step") == 1);
  CHECK(edit_distance("zero_stge", "zero_stage") == 1);
}

TEST_CASE("the nearest key of a misspelt, misplaced or foreign one") {
  const KnownKeys known;
  CHECK(known.nearest("trainer.zero_stge") == "trainer.zero_stage");
  CHECK(known.nearest("trainr") == "trainer");
  CHECK(known.nearest("trainer.lr") == "optimizer.lr");
  CHECK(known.nearest("max_steps") == "trainer.max_steps");
  CHECK(known.nearest("optimizer.learning_rte") == "optimizer.lr");
  CHECK(known.nearest("optimizer.max_grad_norm") == "optimizer.grad_clip");
  CHECK(known.nearest("debug.inject[].rnk") == "debug.inject[].rank");
  CHECK(known.nearest("model.num_attention_heads") == "model.num_heads");
  CHECK(known.nearest("moe.xyzzy_plugh_frobnicate").empty());
}

TEST_CASE("every key is known once") {
  const std::vector<std::string> paths = KnownKeys().value_paths();
  CHECK(paths.size() > 70);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    CHECK(std::find(paths.begin() + static_cast<std::ptrdiff_t>(i) + 1, paths.end(), paths[i]) ==
          paths.end());
  }
}

}  // namespace tessera::config
