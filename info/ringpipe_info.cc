// ringpipe-info: what this machine offers ringpipe, what a communicator would
// use and why. Exit status 0 where one could be opened.
#include <cstdio>
#include <exception>
#include <string>

#include "CLI/CLI.hpp"
#include "info/json.h"
#include "info/report.h"
#include "info/text.h"

namespace {

int Run(int argc, char** argv) {
  CLI::App app(
      "Prints the RDMA devices and ports of this machine, which of them a "
      "ringpipe communicator would use, and why. The exit status is 0 if it "
      "could use one, 1 if not, 2 if an argument is wrong. Then its GPUs, "
      "which do not change that.",
      "ringpipe-info");
  bool json = false;
  std::string sysfs_class;
  app.add_flag("--json", json, "print one JSON object");
  // Not shown by --help: where the kernel shows its RDMA devices.
  app.add_option("--sysfs", sysfs_class)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kWrongArguments = 2;
    return app.exit(error) == 0 ? 0 : kWrongArguments;
  }
  auto sources = ringpipe::info::Sources::OfThisMachine();
  if (!sysfs_class.empty()) {
    sources.sysfs_class = sysfs_class;
  }
  const ringpipe::info::Report report = ringpipe::info::MakeReport(sources);
  const std::string text =
      json ? ringpipe::info::ToJson(report) : ringpipe::info::ToText(report);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    std::perror("ringpipe-info: standard output");
    return 1;
  }
  return report.exit_status();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ringpipe-info: %s\n", error.what());
    return 1;
  }
}
