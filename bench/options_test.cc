#include "bench/options.h"

#include <gtest/gtest.h>

namespace ringpipe {
namespace {

Result<Options> Parse(std::vector<const char*> arguments,
                      const std::string& directory = "") {
  arguments.insert(arguments.begin(), "allreduce");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data(),
                      directory);
}

std::vector<std::uint64_t> AllSizes(const Options& options) {
  std::vector<std::uint64_t> sizes = {options.min_bytes};
  while (const auto next = options.NextSize(sizes.back())) {
    sizes.push_back(*next);
  }
  EXPECT_EQ(sizes.size(), options.Sizes());
  return sizes;
}

TEST(Options, DefaultsAreThoseOfNcclTests) {
  const auto options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(AllSizes(options.value()), std::vector<std::uint64_t>{32 << 20});
  EXPECT_FALSE(options.value().iterations.has_value());
  EXPECT_EQ(options.value().checks, 1);
  EXPECT_EQ(options.value().types, std::vector{DataType::kFloat32});
  EXPECT_EQ(options.value().ops, std::vector{ReduceOp::kSum});
  EXPECT_EQ(options.value().average, AcrossRanks::kAverage);
  EXPECT_EQ(options.value().ranks, 0);
}

TEST(Options, ShortAndLongFormsMeanTheSame) {
  const auto brief =
      Parse({"-b", "1K", "-e", "4K",     "-f", "2",   "-n", "3",
             "-w", "0",  "-d", "double", "-o", "avg", "-c", "2",
             "-a", "3",  "-z", "0",      "-R", "1",   "-J", "x.json"});
  const auto wide = Parse(
      {"--minbytes=1K", "--maxbytes=4K", "--stepfactor=2", "--iters=3",
       "--warmup_iters=0", "--datatype=double", "--op=avg", "--check=2",
       "--average=3", "--blocking=0", "--local_register=1", "--json=x.json"});
  for (const auto* parsed : {&brief, &wide}) {
    ASSERT_TRUE(parsed->ok()) << parsed->status().message();
    const Options& options = parsed->value();
    EXPECT_EQ(AllSizes(options),
              (std::vector<std::uint64_t>{1024, 2048, 4096}));
    EXPECT_EQ(options.iterations, 3);
    EXPECT_EQ(options.warmups, 0);
    EXPECT_EQ(options.checks, 2);
    EXPECT_EQ(options.types, std::vector{DataType::kFloat64});
    EXPECT_EQ(options.ops, std::vector{ReduceOp::kAverage});
    EXPECT_EQ(options.average, AcrossRanks::kMax);
    EXPECT_FALSE(options.blocking);
    EXPECT_EQ(options.buffers, BufferKind::kAllocated);
    EXPECT_EQ(options.json_path, "x.json");
  }
}

TEST(Options, TouchAndHugePagesAreOffUnlessAskedFor) {
  const auto plain = Parse({});
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain.value().touch);
  EXPECT_FALSE(plain.value().huge_pages);
  EXPECT_FALSE(plain.value().pin);
  const auto both = Parse({"--touch", "--huge_pages", "-R", "2"});
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_TRUE(both.value().touch);
  EXPECT_TRUE(both.value().huge_pages);
}

TEST(Options, BuffersBeginWhereMallocPutsThemUnlessAskedOtherwise) {
  const auto plain = Parse({});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain.value().align, 16);
  EXPECT_EQ(plain.value().rotate, 1);
  const auto given = Parse({"--align", "4", "--rotate", "8"});
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(given.value().align, 4);
  EXPECT_EQ(given.value().rotate, 8);
  const auto allocated = Parse({"-R", "1"});
  ASSERT_TRUE(allocated.ok()) << allocated.status().message();
  EXPECT_EQ(allocated.value().align, 0);
}

TEST(Options, SizesGoUpBySteps) {
  const auto options = Parse({"-b", "0", "-e", "10", "-i", "4"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(AllSizes(options.value()), (std::vector<std::uint64_t>{0, 4, 8}));
}

TEST(Options, OneSizeAloneIsEnoughWhereTheOtherWouldContradictIt) {
  EXPECT_EQ(Parse({"-b", "1G"}).value().max_bytes, 1u << 30);
  EXPECT_EQ(Parse({"-e", "1K"}).value().min_bytes, 1u << 10);
}

TEST(Options, TensorsAreOneSize) {
  const auto options = Parse(
      {"--tensors", "resnet50", "-d", "bfloat16", "--collective", "broadcast"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->tensors.size(), 161U);
  EXPECT_EQ(AllSizes(options.value()),
            (std::vector<std::uint64_t>{2 * 25'557'032}));
  EXPECT_TRUE(Parse({}).value().tensors.empty());
}

TEST(Options, AllTypesAndOps) {
  const auto options = Parse({"-d", "all", "-o", "all"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options.value().types.size(), kDataTypes.size());
  EXPECT_EQ(options.value().ops.size(), kReduceOps.size());
}

TEST(Options, ATraceIsAFile) {
  EXPECT_NE(Parse({"--trace", "-"})
                .status()
                .message()
                .find("takes the name of a file"),
            std::string::npos);
}

TEST(Options, RelativePathsAreTakenFromTheInvocationDirectory) {
  EXPECT_EQ(Parse({"-J", "a.json"}, "/there").value().json_path,
            "/there/a.json");
  EXPECT_EQ(Parse({"--trace", "a"}, "/there").value().trace_path, "/there/a");
  EXPECT_EQ(Parse({"-J", "/b.json"}, "/there").value().json_path, "/b.json");
}

TEST(Options, ADashIsStandardOutputFromEveryDirectory) {
  EXPECT_TRUE(Parse({"-J", "-"}, "/there").value().JsonToStandardOutput());
  EXPECT_FALSE(Parse({"-J", "./-"}, "/there").value().JsonToStandardOutput());
}

TEST(Options, AnUnknownOptionIsNamedAsTypedAndANearOneSuggested) {
  const auto message = [](std::vector<const char*> arguments) {
    const auto options = Parse(std::move(arguments));
    return options.ok() ? "accepted" : options.status().message();
  };
  EXPECT_EQ(message({"--rnaks=3"}),
            "there is no option --rnaks=3; did you mean --ranks?; see --help");
  EXPECT_EQ(message({"--rank", "3"}),
            "there is no option --rank; did you mean --ranks?; see --help");
  EXPECT_EQ(message({"--minbyte=3"}),
            "there is no option --minbyte=3; did you mean --minbytes?; see "
            "--help");
  EXPECT_EQ(message({"--nothing-like-it"}),
            "there is no option --nothing-like-it; see --help");
  EXPECT_EQ(message({"--ranks", "2", "-Z"}),
            "there is no option -Z; see --help");
  EXPECT_EQ(message({"-n", "3", "--foo", "bar", "--ranks=2", "stray"}),
            "there is no option --foo; see --help");
  EXPECT_EQ(message({"stray", "--foo"}),
            "unexpected argument: stray; see --help");
  // The hidden option is for ranks.
  EXPECT_EQ(message({"--error-fe=3"}),
            "there is no option --error-fe=3; see --help");
}

TEST(Options, HelpNamesEveryOptionOfNcclTestsAndNoInternalOne) {
  const auto options = Parse({"--help"});
  ASSERT_TRUE(options.ok());
  for (const char* option :
       {"--minbytes",   "--maxbytes",     "--stepbytes", "--stepfactor",
        "--iters",      "--warmup_iters", "--datatype",  "--op",
        "--check",      "--average",      "--blocking",  "--local_register",
        "--json",       "--ranks",        "--version",   "--touch",
        "--huge_pages", "--pin",          "--algorithm", "--align",
        "--rotate",     "--memory"}) {
    EXPECT_NE(options.value().help.find(option), std::string::npos) << option;
  }
  EXPECT_EQ(options.value().help.find("error-fd"), std::string::npos);
}

TEST(Options, MemoryOfAGpuBeginsWhereTheDriverSaysUnlessAlignIsGiven) {
  EXPECT_EQ(Parse({"--memory", "host"}).value().align, kMallocAlign);
  const auto device = Parse({"--memory", "device"});
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value().memory, MemoryPlace::kDevice);
  EXPECT_EQ(device.value().align, 0);
  EXPECT_EQ(Parse({"--memory", "managed", "--align", "8"}).value().align, 8);
}

TEST(Options, BadInputIsAnErrorThatSaysWhatIsAllowed) {
  struct Row {
    std::vector<const char*> arguments;
    const char* says;
  };
  for (const Row& row : {
           Row{{"-d", "float99"}, "float32"},
           Row{{"-o", "xor"}, "sum"},
           Row{{"-b", "12Q"}, "256M"},
           Row{{"-b", "-1"}, "negative"},
           Row{{"-b", "2M", "-e", "1M"}, "must not be above"},
           Row{{"-f", "1"}, "2"},
           Row{{"-f", "-2"}, "2"},
           Row{{"-i", "0"}, "at least 1"},
           Row{{"-i", "1K", "-f", "2"}, "stepbytes"},
           Row{{"-b", "0", "-f", "2"}, "zero"},
           Row{{"-n", "0"}, "1"},
           Row{{"-n", "-3"}, "1"},
           Row{{"-n", "many"}, "1"},
           Row{{"-w", "-1"}, "0"},
           Row{{"-c", "-1"}, "0"},
           Row{{"-a", "4"}, "3"},
           Row{{"-z", "2"}, "1"},
           Row{{"-R", "3"}, "2"},
           Row{{"-R", "1", "--huge_pages"}, "use -R 0 or -R 2"},
           Row{{"-R", "1", "--align", "16"}, "use -R 0 or -R 2"},
           Row{{"--memory", "gpu"}, "host, device, managed"},
           Row{{"--memory", "device", "-R", "1"}, "-R 1 (--local_register) is"},
           Row{{"--memory", "managed", "-R", "2"}, "--memory managed is"},
           Row{{"--memory", "device", "--huge_pages"}, "--huge_pages is for"},
           Row{{"--memory", "device", "--touch"}, "--touch is for memory of"},
           Row{{"--align", "4096"}, "4095"},
           Row{{"--align", "2"}, "4 bytes of float32"},
           Row{{"-d", "all", "--align", "4"}, "8 bytes of float64"},
           Row{{"--rotate", "0"}, "1"},
           Row{{"--tensors", "resnet51"}, "allowed is resnet50"},
           Row{{"--tensors", "resnet50", "-b", "1M"}, "minbytes"},
           Row{{"--tensors", "resnet50", "-d", "all"}, "one data type"},
           Row{{"--tensors", "resnet50", "--collective", "all-gather"},
               "a part for each rank"},
           Row{{"--touch=maybe"}, "touch"},
           Row{{"--pin"}, "for ranks that --ranks starts"},
           Row{{"--ranks", "0"}, "1024"},
           Row{{"--ranks", "1025"}, "1024"},
           Row{{"--seed", "x"}, "seed"},
           Row{{"stray"}, "stray"},
           Row{{"-b"}, "minbytes"},
       }) {
    const auto options = Parse(row.arguments);
    ASSERT_FALSE(options.ok()) << row.arguments.front();
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(options.status().message().find(row.says), std::string::npos)
        << options.status().message();
  }
}

}  // namespace
}  // namespace ringpipe
