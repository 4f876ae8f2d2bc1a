#include "bootstrap/slurm_node_list.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace ringpipe {
namespace {

TEST(SlurmNodeListTest, FirstHostOfEveryForm) {
  for (const auto& [list, first] : {std::pair("gpu7", "gpu7"),
                                    {"gpu7,gpu8", "gpu7"},
                                    {"gpu[03-05,9],x1", "gpu03"},
                                    {"gpu[9,03-05]", "gpu9"},
                                    {"x1,gpu[03-05]", "x1"},
                                    {"gpu[03-05]-ib,y", "gpu03-ib"},
                                    {"r[1-2]n[08-11]", "r1n08"}}) {
    EXPECT_EQ(FirstSlurmHost(list).value(), first);
  }
}

TEST(SlurmNodeListTest, NoListIsAnError) {
  for (const std::string list :
       {"", ",a", "gpu[1-2", "gpu]", "gpu[]", "gpu[a-b]", "[[1]"}) {
    EXPECT_EQ(FirstSlurmHost(list).status().code(),
              StatusCode::kInvalidArgument)
        << list;
  }
}

}  // namespace
}  // namespace ringpipe
