#include "docs/schedule_picture.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace ringpipe {
namespace {

constexpr std::size_t kStepWidth = 6;  // "step", and two spaces

std::string Chunks(const Place& source, int chunks, bool equal_chunks) {
  if (equal_chunks && source.buffer == Place::Buffer::kScratch) {
    return std::to_string(source.count) +
           (source.count == 1 ? " chunk" : " chunks");
  }
  std::string letters;
  for (int i = 0; i < source.count; ++i) {
    letters += static_cast<char>('A' + source.At(i, chunks).chunk % chunks);
  }
  return letters;
}

void Pad(std::string& line, std::size_t width) {
  line.append(width - std::min(width, line.size()), ' ');
}

}  // namespace

std::string PictureOf(std::span<const SentMessage> messages, int ranks,
                      int chunks, bool equal_chunks) {
  // By step and sender.
  std::map<int, std::vector<std::vector<std::string>>> steps;
  std::vector<std::size_t> widths;
  for (int rank = 0; rank < ranks; ++rank) {
    widths.push_back(std::string("rank ").size() + std::to_string(rank).size());
  }
  for (const SentMessage& message : messages) {
    auto& step = steps[message.chain];
    step.resize(ranks);
    const std::string& text = step[message.from].emplace_back(
        Chunks(message.source, chunks, equal_chunks) +
        (message.reduced ? " +-> " : " -> ") + std::to_string(message.to));
    widths[message.from] = std::max(widths[message.from], text.size());
  }

  std::string picture;
  const auto add_line = [&](std::string line, const auto& text_of) {
    std::size_t column = kStepWidth;
    for (int rank = 0; rank < ranks; ++rank) {
      Pad(line, column);
      line += text_of(rank);
      column += widths[rank] + 3;
    }
    picture += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line("step", [](int rank) { return "rank " + std::to_string(rank); });
  for (const auto& [number, senders] : steps) {
    std::size_t lines = 0;
    for (const std::vector<std::string>& sender : senders) {
      lines = std::max(lines, sender.size());
    }
    for (std::size_t i = 0; i < lines; ++i) {
      const auto text_of = [i, &texts = senders](int rank) {
        return i < texts[rank].size() ? texts[rank][i] : std::string();
      };
      add_line(i == 0 ? "  " + std::to_string(number) : "", text_of);
    }
  }
  return picture;
}

}  // namespace ringpipe
