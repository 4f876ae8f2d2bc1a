#include "validate/ethernet.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <new>
#include <string_view>

#include "base/file_descriptor.h"

namespace ringpipe::validate {
namespace {

// More than there are link modes, so that one look gets all their names.
constexpr std::uint32_t kMostModes = 1024;
constexpr std::uint32_t kModesPerWord = 32;

// One of ethtool's structures, with room for the array at its end.
template <typename Head, typename Element, std::size_t kElements>
class Question {
 public:
  explicit Question(std::uint32_t command) : head_(new (bytes_.data()) Head()) {
    head_->cmd = command;
  }
  Head& head() { return *head_; }
  const Element* array() const {
    return reinterpret_cast<const Element*>(bytes_.data() + sizeof(Head));
  }

 private:
  alignas(8) std::array<std::byte,
                        sizeof(Head) + kElements * sizeof(Element)> bytes_ = {};
  Head* const head_;
};

class Interface {
 public:
  explicit Interface(const std::string& name)
      : name_(name), socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

  // The kernel's names of link modes, by bit. Empty: it does not say.
  std::vector<std::string> ModeNames() const {
    using Name = std::array<char, ETH_GSTRING_LEN>;
    Question<ethtool_gstrings, Name, kMostModes> strings(ETHTOOL_GSTRINGS);
    strings.head().string_set = ETH_SS_LINK_MODES;
    std::vector<std::string> names;
    if (CountModes() <= kMostModes && Ask(strings)) {
      for (std::uint32_t mode = 0; mode < strings.head().len; ++mode) {
        const Name& name = strings.array()[mode];
        names.emplace_back(name.begin(),
                           std::find(name.begin(), name.end(), '\0'));
      }
    }
    return names;
  }

  // A bit for each link mode. Empty: the driver does not say.
  std::vector<std::uint32_t> SupportedModes() const {
    // Three masks: supported, advertised, advertised by the peer.
    constexpr int kMostWords = kMostModes / kModesPerWord;
    using Settings =
        Question<ethtool_link_settings, std::uint32_t, 3 * kMostWords>;
    // Asked with a wrong number of words, the kernel says the right one,
    // negative; asked with that, it answers.
    Settings wrong(ETHTOOL_GLINKSETTINGS);
    if (!Ask(wrong)) {
      return {};
    }
    const int words = -wrong.head().link_mode_masks_nwords;
    Settings settings(ETHTOOL_GLINKSETTINGS);
    settings.head().link_mode_masks_nwords = static_cast<std::int8_t>(words);
    if (words <= 0 || words > kMostWords || !Ask(settings)) {
      return {};
    }
    return {settings.array(), settings.array() + words};
  }

 private:
  std::uint32_t CountModes() const {
    Question<ethtool_sset_info, std::uint32_t, 1> sets(ETHTOOL_GSSET_INFO);
    sets.head().sset_mask = std::uint64_t{1} << ETH_SS_LINK_MODES;
    return Ask(sets) ? *sets.array() : 0;
  }

  template <typename Question>
  bool Ask(Question& question) const {
    ifreq request = {};
    name_.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&question.head());
    return ioctl(socket_.get(), SIOCETHTOOL, &request) == 0;
  }

  const std::string name_;
  const FileDescriptor socket_;
};

}  // namespace

int FastestMode(const std::vector<std::string>& names,
                std::span<const std::uint32_t> supported) {
  int fastest = 0;
  for (std::size_t mode = 0; mode < names.size(); ++mode) {
    const std::size_t word = mode / kModesPerWord;
    if (word >= supported.size() ||
        (supported[word] >> mode % kModesPerWord & 1) == 0) {
      continue;
    }
    const std::string& name = names[mode];
    int megabits = 0;
    const auto [end, error] =
        std::from_chars(name.data(), name.data() + name.size(), megabits);
    if (error == std::errc() && std::string_view(end).starts_with("base")) {
      fastest = std::max(fastest, megabits);
    }
  }
  return fastest;
}

int MostMegabitsPerS(const std::string& interface) {
  const Interface asked(interface);
  return FastestMode(asked.ModeNames(), asked.SupportedModes());
}

}  // namespace ringpipe::validate
