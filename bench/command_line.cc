#include "bench/command_line.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

namespace ringpipe {
namespace {

Status Invalid(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

// How many characters have to be inserted, deleted, replaced or swapped with
// their neighbour to make one of the other (optimal string alignment).
int EditDistance(std::string_view from, std::string_view to) {
  std::vector<std::vector<int>> distance(from.size() + 1,
                                         std::vector<int>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = static_cast<int>(i + j);
        continue;
      }
      const bool same = from[i - 1] == to[j - 1];
      int best = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1,
                           distance[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] &&
          from[i - 2] == to[j - 1]) {
        best = std::min(best, distance[i - 2][j - 2] + 1);
      }
      distance[i][j] = best;
    }
  }
  return distance[from.size()][to.size()];
}

// Of the program and of its subcommands.
std::vector<const CLI::Option*> VisibleOptions(const CLI::App& app) {
  std::vector<const CLI::App*> parts =
      app.get_subcommands([](const CLI::App* /*any*/) { return true; });
  parts.insert(parts.begin(), &app);
  std::vector<const CLI::Option*> visible;
  for (const CLI::App* part : parts) {
    for (const CLI::Option* option : part->get_options()) {
      if (!option->get_group().empty()) {
        visible.push_back(option);
      }
    }
  }
  return visible;
}

// "; did you mean --ranks?", or nothing where no long option is near.
std::string NearMiss(const CLI::App& app, std::string_view typed) {
  const std::string_view name = typed.substr(0, typed.find('='));
  std::string nearest;
  // More than two mistakes, or one in three letters, make another word.
  int least = std::min(3, (static_cast<int>(name.size()) - 2) / 3 + 1);
  if (name.size() > 4 && name.starts_with("--")) {
    for (const CLI::Option* option : VisibleOptions(app)) {
      for (const std::string& known : option->get_lnames()) {
        const int distance = EditDistance(name.substr(2), known);
        if (distance < least) {
          least = distance;
          nearest = known;
        }
      }
    }
  }
  return nearest.empty() ? "" : "; did you mean --" + nearest + "?";
}

// Names the first argument that nobody knows, in the words of whoever typed it.
// CLI11 has them in another order.
Status UnknownArgument(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  for (int i = 1; i < argc; ++i) {
    const std::string typed = argv[i];
    if (std::find(unknown.begin(), unknown.end(), typed) != unknown.end()) {
      return Invalid((typed.starts_with("-") ? "there is no option "
                                             : "unexpected argument: ") +
                     typed + NearMiss(app, typed) + "; see --help");
    }
  }
  // CLI11 took an argument apart.
  return Invalid("there is no option " +
                 (unknown.empty() ? std::string("like this") : unknown.back()) +
                 "; see --help");
}

}  // namespace

Result<std::string> ParseCommandLine(CLI::App& app, int argc,
                                     const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ExtrasError&) {
    return UnknownArgument(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    return Invalid(std::string(error.what()) + "; see --help");
  }
  return std::string();
}

std::string PathFrom(const std::string& directory, const std::string& path) {
  return path.empty() || path == "-" || directory.empty()
             ? path
             : (std::filesystem::path(directory) / path).string();
}

}  // namespace ringpipe
