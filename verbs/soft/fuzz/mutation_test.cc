// A short run with mutated inputs, as a normal test; fuzz.sh makes the long
// one, which learns from what an input reaches.
//
//   mutation_test --seeds=DIR    writes the seeds there instead
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "verbs/soft/fuzz/introduction_fuzzer.h"
#include "verbs/soft/fuzz/packets_fuzzer.h"
#include "verbs/soft/fuzz/seeds.h"
#include "verbs/soft/fuzz/segment_fuzzer.h"

namespace ringpipe::verbs::soft {
namespace {

using Fuzz = void (*)(const std::uint8_t*, std::size_t);

// Changes a few bytes, repeats or drops a piece.
void Mutate(std::string* input, std::mt19937* random) {
  constexpr unsigned char kInteresting[] = {0, 1, 2, 4, 0x7f, 0x80, 0xff};
  const auto below = [random](std::size_t limit) {
    return static_cast<std::size_t>((*random)() % limit);
  };
  const std::size_t changes = 1 + below(4);
  for (std::size_t i = 0; i < changes && !input->empty(); ++i) {
    const std::size_t at = below(input->size());
    const std::size_t bytes =
        1 + below(std::min<std::size_t>(128, input->size() - at));
    switch (below(6)) {
      case 0:
        (*input)[at] = static_cast<char>((*random)());
        break;
      case 1:
      case 2:
        (*input)[at] =
            static_cast<char>(kInteresting[below(sizeof kInteresting)]);
        break;
      case 3:
        (*input)[at] = static_cast<char>((*input)[at] + (below(2) * 2 - 1));
        break;
      case 4:
        input->insert(at, input->substr(below(input->size()), bytes));
        break;
      case 5:
        input->erase(at, bytes);
        break;
    }
  }
}

void GiveInputs(Fuzz fuzz, const std::vector<std::string>& seeds, int inputs) {
  std::mt19937 random(1);
  const auto give = [fuzz](const std::string& input) {
    fuzz(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  };
  for (const std::string& seed : seeds) {
    give(seed);
  }
  for (int i = 0; i < inputs; ++i) {
    std::string input = seeds[random() % seeds.size()];
    Mutate(&input, &random);
    give(input);
  }
}

TEST(Mutation, PacketsOfAPeerDoNoHarm) {
  GiveInputs(FuzzPackets, PacketSeeds(), 200'000);
}

TEST(Mutation, StrangersBytesLetNobodyIn) {
  // Of the seeds only the one that stops half-way: the others know the secret,
  // but not this run's nonces.
  GiveInputs(FuzzIntroduction, IntroductionSeeds(), 200'000);
}

TEST(Mutation, WhatAPeerStoresInTheSegmentsDoesNoHarm) {
  GiveInputs(FuzzSegment, SegmentSeeds(), 100'000);
}

void WriteSeeds(const std::filesystem::path& folder, std::string_view name,
                const std::vector<std::string>& seeds) {
  std::filesystem::create_directories(folder / name);
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream(folder / name / std::to_string(i), std::ios::binary)
        << seeds[i];
  }
}

}  // namespace
}  // namespace ringpipe::verbs::soft

int main(int argc, char** argv) {
  namespace soft = ringpipe::verbs::soft;
  constexpr std::string_view kSeeds = "--seeds=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(kSeeds)) {
    const std::filesystem::path folder =
        std::string_view(argv[1]).substr(kSeeds.size());
    soft::WriteSeeds(folder, "packets", soft::PacketSeeds());
    soft::WriteSeeds(folder, "introduction", soft::IntroductionSeeds());
    soft::WriteSeeds(folder, "segment", soft::SegmentSeeds());
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
