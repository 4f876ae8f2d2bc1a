#include "validate/measurements.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nlohmann/json.hpp"
#include "validate/named_ranks.h"

namespace ringpipe::validate {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr int kMostRanks = 32'767;
constexpr int kMostRepeats = 10'000;

// A NaN becomes null. Bandwidths are whole bytes: their fractions say nothing.
Json NumberOrNull(double value, bool whole) {
  if (std::isnan(value)) {
    return nullptr;
  }
  return whole ? Json(std::llround(value)) : Json(value);
}

// By sender a list of all samples, receiver by receiver.
Json OfSamples(const LinkSamples& samples, bool whole) {
  Json rows = Json::array();
  for (int from = 0; from < samples.ranks(); ++from) {
    Json row = Json::array();
    for (int to = 0; to < samples.ranks(); ++to) {
      for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
        row.push_back(NumberOrNull(samples.at(from, to, repeat), whole));
      }
    }
    rows.push_back(std::move(row));
  }
  return {{"repeats", samples.repeats()}, {"by_sender", std::move(rows)}};
}

Status Wrong(const std::string& what) {
  return {StatusCode::kInvalidArgument,
          "not a file of ringpipe's interconnect: " + what};
}

// A file may come from anybody: what a terminal would take for a command
// becomes a question mark.
void MakePrintable(Json& json) {
  if (json.is_string()) {
    auto& text = json.get_ref<std::string&>();
    std::replace_if(
        text.begin(), text.end(),
        [](unsigned char c) { return c < ' ' || c == 0x7F; }, '?');
  }
  if (json.is_structured()) {
    for (Json& part : json) {
      MakePrintable(part);
    }
  }
}

Result<LinkSamples> SamplesFrom(const Json& json, int ranks) {
  const int repeats = json.at("repeats");
  const Json& rows = json.at("by_sender");
  if (repeats < 1 || repeats > kMostRepeats ||
      rows.size() != static_cast<std::size_t>(ranks)) {
    return Wrong("a matrix does not have a row for each rank");
  }
  for (int from = 0; from < ranks; ++from) {
    if (!rows[from].is_array() ||
        rows[from].size() != static_cast<std::size_t>(ranks) * repeats) {
      return Wrong("row " + std::to_string(from) +
                   " of a matrix has not as many samples as it should");
    }
  }
  // Now that the file is known to be as large.
  LinkSamples samples(ranks, repeats);
  for (int from = 0; from < ranks; ++from) {
    const Json& row = rows[from];
    for (int to = 0; to < ranks; ++to) {
      for (int repeat = 0; repeat < repeats; ++repeat) {
        const Json& value =
            row[static_cast<std::size_t>(to) * repeats + repeat];
        samples.at(from, to, repeat) =
            value.is_null() ? kNone : value.get<float>();
      }
    }
  }
  return samples;
}

Json OfRanks(const std::vector<Rank>& ranks) {
  Json list = Json::array();
  for (const Rank& rank : ranks) {
    list.push_back({{"host", rank.host},
                    {"pid", rank.pid},
                    {"device", rank.device},
                    {"rails", rank.rails},
                    {"cores", rank.cores}});
  }
  return list;
}

Json OfPlanes(const std::vector<Plane>& planes) {
  Json list = Json::array();
  for (const Plane& plane : planes) {
    list.push_back(
        {{"name", plane.name},
         {"rail", plane.rail},
         {"message_bytes", plane.message_bytes},
         {"bytes_per_s", OfSamples(plane.bytes_per_s, /*whole=*/true)}});
  }
  return list;
}

Json OfIsolated(const std::vector<Isolated>& links) {
  Json list = Json::array();
  for (const Isolated& link : links) {
    Json samples = Json::array();
    for (const double sample : link.bytes_per_s) {
      samples.push_back(NumberOrNull(sample, /*whole=*/true));
    }
    list.push_back({{"plane", link.plane},
                    {"from", link.from},
                    {"to", link.to},
                    {"control", link.control},
                    {"bytes_per_s", std::move(samples)},
                    {"queued", link.queued}});
  }
  return list;
}

Json OfPatterns(const std::vector<Pattern>& patterns) {
  Json list = Json::array();
  for (const Pattern& pattern : patterns) {
    list.push_back({{"kind", pattern.kind},
                    {"name", pattern.name},
                    {"bytes_per_s", pattern.bytes_per_s},
                    {"of_links_bytes_per_s", pattern.of_links_bytes_per_s}});
  }
  return list;
}

Json OfStress(const Stress& stress) {
  Json wrong = Json::array();
  for (const Stress::Wrong& link : stress.wrong) {
    wrong.push_back({{"from", link.from},
                     {"to", link.to},
                     {"messages", link.messages},
                     {"bytes", link.bytes}});
  }
  return {{"seconds", stress.seconds},
          {"messages", stress.messages},
          {"bytes", stress.bytes},
          {"wrong", std::move(wrong)}};
}

Json OfPort(const Port& port) {
  return {{"host", port.host},
          {"device", port.device},
          {"port", port.number},
          {"state", port.state},
          {"physical_state", port.physical_state},
          {"link_layer", port.link_layer},
          {"rate", port.rate},
          {"gigabits_per_s", port.gigabits_per_s},
          {"lanes", port.lanes},
          {"speed", port.speed},
          {"interface", port.interface},
          {"interface_mtu", port.interface_mtu},
          {"interface_megabits_per_s", port.interface_megabits_per_s},
          {"interface_most_megabits_per_s", port.interface_most_megabits_per_s},
          {"gid_types", port.gid_types},
          {"pci_gigatransfers_per_s", port.pci_gigatransfers_per_s},
          {"pci_most_gigatransfers_per_s", port.pci_most_gigatransfers_per_s},
          {"pci_lanes", port.pci_lanes},
          {"pci_most_lanes", port.pci_most_lanes},
          {"counters_before", port.before},
          {"counters_after", port.after}};
}

Json OfLost(const std::vector<Lost>& hosts) {
  Json list = Json::array();
  for (const Lost& lost : hosts) {
    list.push_back({{"host", lost.host},
                    {"phase", lost.phase},
                    {"message", lost.message}});
  }
  return list;
}

Json OfNetworks(const std::vector<HostNetwork>& networks) {
  Json list = Json::array();
  for (const HostNetwork& network : networks) {
    list.push_back({{"host", network.host},
                    {"megabits_per_s", network.megabits_per_s},
                    {"segments", network.segments},
                    {"retransmitted", network.retransmitted},
                    {"steps", network.steps},
                    {"lossy_steps", network.lossy_steps}});
  }
  return list;
}

Status ReadRanks(const Json& json, Measurements& into) {
  for (const Json& rank : json) {
    into.ranks.push_back({rank.at("host"), rank.at("pid"), rank.at("device"),
                          rank.at("rails"), rank.at("cores")});
  }
  if (into.ranks.empty() || into.ranks.size() > kMostRanks) {
    return Wrong("it has " + std::to_string(into.ranks.size()) + " ranks");
  }
  return Status::Ok();
}

bool IsRank(const Measurements& of, int rank) {
  return rank >= 0 && rank < of.size();
}

Status ReadPlanes(const Json& json, Measurements& into) {
  for (const Json& plane : json) {
    RINGPIPE_ASSIGN_OR_RETURN(
        LinkSamples samples, SamplesFrom(plane.at("bytes_per_s"), into.size()));
    const int rail = plane.at("rail");
    if (rail < -1 || rail >= into.CommonRails()) {
      return Wrong("rail " + std::to_string(rail) +
                   ", which not all ranks have");
    }
    into.planes.push_back({plane.at("name"), rail, plane.at("message_bytes"),
                           std::move(samples)});
  }
  return Status::Ok();
}

Status ReadIsolated(const Json& json, Measurements& into) {
  for (const Json& link : json) {
    Isolated isolated = {link.at("plane"),
                         link.at("from"),
                         link.at("to"),
                         link.at("control"),
                         {}};
    for (const Json& sample : link.at("bytes_per_s")) {
      isolated.bytes_per_s.push_back(sample.is_null() ? kNone
                                                      : sample.get<double>());
    }
    if (link.contains("queued")) {
      link.at("queued").get_to(isolated.queued);
    }
    if (isolated.plane < 0 ||
        isolated.plane >= static_cast<int>(into.planes.size()) ||
        !IsRank(into, isolated.from) || !IsRank(into, isolated.to)) {
      return Wrong("an isolated link names a rank or a plane that it lacks");
    }
    into.isolated.push_back(std::move(isolated));
  }
  return Status::Ok();
}

Status ReadStress(const Json& json, Measurements& into) {
  Stress stress = {
      json.at("seconds"), json.at("messages"), json.at("bytes"), {}};
  for (const Json& link : json.at("wrong")) {
    stress.wrong.push_back({link.at("from"), link.at("to"), link.at("messages"),
                            link.at("bytes")});
    if (!IsRank(into, stress.wrong.back().from) ||
        !IsRank(into, stress.wrong.back().to)) {
      return Wrong("an error names a rank that it lacks");
    }
  }
  into.stress = std::move(stress);
  return Status::Ok();
}

Port PortFrom(const Json& json) {
  Port port;
  port.host = json.at("host");
  port.device = json.at("device");
  port.number = json.at("port");
  port.state = json.at("state");
  port.physical_state = json.at("physical_state");
  port.link_layer = json.at("link_layer");
  port.rate = json.at("rate");
  port.gigabits_per_s = json.at("gigabits_per_s");
  port.lanes = json.at("lanes");
  port.speed = json.at("speed");
  port.interface = json.at("interface");
  port.interface_mtu = json.at("interface_mtu");
  // Older reports lack them.
  port.interface_megabits_per_s = json.value("interface_megabits_per_s", 0);
  port.interface_most_megabits_per_s =
      json.value("interface_most_megabits_per_s", 0);
  port.gid_types = json.at("gid_types").get<std::vector<std::string>>();
  port.pci_gigatransfers_per_s = json.at("pci_gigatransfers_per_s");
  port.pci_most_gigatransfers_per_s = json.at("pci_most_gigatransfers_per_s");
  port.pci_lanes = json.at("pci_lanes");
  port.pci_most_lanes = json.at("pci_most_lanes");
  port.before =
      json.at("counters_before").get<std::map<std::string, std::uint64_t>>();
  port.after =
      json.at("counters_after").get<std::map<std::string, std::uint64_t>>();
  return port;
}

void ReadRest(const Json& json, Measurements& into) {
  into.version = json.at("version");
  into.date = json.at("date");
  into.way = json.at("way");
  into.seconds = json.at("seconds");
  for (const Json& pattern : json.at("patterns")) {
    into.patterns.push_back({pattern.at("kind"), pattern.at("name"),
                             pattern.at("bytes_per_s"),
                             pattern.at("of_links_bytes_per_s")});
  }
  for (const Json& port : json.at("ports")) {
    into.ports.push_back(PortFrom(port));
  }
  // Older reports lack them.
  for (const Json& network : json.value("networks", Json::array())) {
    into.networks.push_back({network.at("host"), network.at("megabits_per_s"),
                             network.at("segments"),
                             network.at("retransmitted"),
                             network.value("steps", std::uint64_t{0}),
                             network.value("lossy_steps", std::uint64_t{0})});
  }
  for (const Json& lost : json.value("lost", Json::array())) {
    into.lost.push_back(
        {lost.at("host"), lost.at("phase"), lost.at("message")});
  }
  if (const Json& ending = json.at("ending"); !ending.is_null()) {
    into.ending = Ending{ending.at("phase"), ending.at("message"),
                         ending.at("lost_rank"), ending.at("interrupted_by")};
    if (!IsRank(into, into.ending->lost_rank)) {
      into.ending->lost_rank = -1;
    }
  }
}

Result<Measurements> Read(const Json& json) {
  if (!json.is_object() || !json.contains("ringpipe_interconnect")) {
    return Wrong("it has no \"ringpipe_interconnect\"");
  }
  if (json.at("ringpipe_interconnect") != kFormat) {
    return Wrong("its format is " + json.at("ringpipe_interconnect").dump() +
                 ", and this program reads " + std::to_string(kFormat));
  }
  Measurements read;
  RINGPIPE_RETURN_IF_ERROR(ReadRanks(json.at("ranks"), read));
  RINGPIPE_RETURN_IF_ERROR(ReadPlanes(json.at("planes"), read));
  RINGPIPE_RETURN_IF_ERROR(ReadIsolated(json.at("isolated"), read));
  if (const Json& latencies = json.at("latencies"); !latencies.is_null()) {
    RINGPIPE_ASSIGN_OR_RETURN(
        LinkSamples median, SamplesFrom(latencies.at("median_s"), read.size()));
    RINGPIPE_ASSIGN_OR_RETURN(LinkSamples p99,
                              SamplesFrom(latencies.at("p99_s"), read.size()));
    read.latencies = Latencies{std::move(median), std::move(p99)};
  }
  if (const Json& stress = json.at("stress"); !stress.is_null()) {
    RINGPIPE_RETURN_IF_ERROR(ReadStress(stress, read));
  }
  ReadRest(json, read);
  return read;
}

}  // namespace

int Measurements::CommonRails() const {
  std::size_t rails = ranks.empty() ? 0 : ranks.front().rails.size();
  for (const Rank& rank : ranks) {
    rails = std::min(rails, rank.rails.size());
  }
  return static_cast<int>(rails);
}

void Measurements::EndBy(const Status& failure, const std::string& phase,
                         int lost_rank) {
  const std::set<int> listed = ListedRanks(failure.message(), size());
  if (lost_rank < 0 && failure.code() == StatusCode::kTimeout &&
      HostsOf(*this, listed).size() == 1 && !OnOneHost()) {
    lost_rank = *listed.begin();
  }
  ending = Ending{phase, WithHosts(*this, failure.message()),
                  lost_rank < size() ? lost_rank : -1, ""};
}

double Median(std::vector<double> values) {
  if (values.empty()) {
    return kNone;
  }
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 != 0
             ? *middle
             : (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double Quantile(const std::vector<Weighted>& values, double part) {
  double all = 0;
  for (const Weighted& one : values) {
    all += one.weight;
  }
  double below = 0;
  for (const Weighted& one : values) {
    below += one.weight;
    if (below > part * all) {
      return one.value;
    }
  }
  return values.back().value;
}

std::size_t EffectiveCount(const std::vector<Weighted>& values) {
  double sum = 0, squares = 0;
  for (const Weighted& one : values) {
    sum += one.weight;
    squares += one.weight * one.weight;
  }
  return static_cast<std::size_t>(std::lround(sum * sum / squares));
}

LinkSamples::LinkSamples(int ranks, int repeats)
    : ranks_(ranks),
      repeats_(repeats),
      values_(static_cast<std::size_t>(ranks) * ranks * repeats, kNone) {}

std::vector<double> LinkSamples::SamplesOf(int from, int to) const {
  std::vector<double> taken;
  for (int repeat = 0; repeat < repeats_; ++repeat) {
    if (!std::isnan(at(from, to, repeat))) {
      taken.push_back(at(from, to, repeat));
    }
  }
  return taken;
}

double LinkSamples::RateOf(int from, int to) const {
  return validate::RateOf(SamplesOf(from, to));
}

double LinkSamples::ErrorOf(int from, int to) const {
  return validate::ErrorOf(SamplesOf(from, to));
}

void LinkSamples::AddRepeats(int more) {
  LinkSamples larger(ranks_, repeats_ + more);
  for (int from = 0; from < ranks_; ++from) {
    for (int to = 0; to < ranks_; ++to) {
      for (int repeat = 0; repeat < repeats_; ++repeat) {
        larger.at(from, to, repeat) = at(from, to, repeat);
      }
    }
  }
  *this = std::move(larger);
}

double RateOf(std::vector<double> samples) {
  std::sort(samples.rbegin(), samples.rend());
  return samples.empty() ? kNone : samples[samples.size() > 2 ? 1 : 0];
}

double ErrorOf(std::vector<double> samples) {
  // Of the second largest of 3 to 12 normal samples, by that distance.
  constexpr double kErrorOfDistance = 0.45;
  std::sort(samples.rbegin(), samples.rend());
  return samples.size() < 2
             ? 0
             : kErrorOfDistance *
                   (samples[0] - samples[samples.size() > 2 ? 2 : 1]) /
                   samples[samples.size() > 2 ? 1 : 0];
}

std::string Measurements::NameOf(int rank) const {
  const std::string& host = ranks[rank].host;
  const auto here =
      std::count_if(ranks.begin(), ranks.end(),
                    [&host](const Rank& other) { return other.host == host; });
  return here == 1 ? host : host + " rank " + std::to_string(rank);
}

bool Measurements::OnOneHost() const {
  return std::all_of(ranks.begin(), ranks.end(), [this](const Rank& rank) {
    return rank.host == ranks.front().host;
  });
}

bool Measurements::IsOversubscribed(int rank) const {
  const auto here = std::count_if(
      ranks.begin(), ranks.end(),
      [&](const Rank& other) { return other.host == ranks[rank].host; });
  return ranks[rank].cores > 0 && here > ranks[rank].cores;
}

bool Measurements::HasAllLinks() const {
  if (planes.empty() || patterns.empty()) {
    return false;
  }
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      if (from != to &&
          planes.front().bytes_per_s.SamplesOf(from, to).empty()) {
        return false;
      }
    }
  }
  return true;
}

void Measurements::NameHostsLike(const Measurements& earlier,
                                 const std::vector<int>& ranks_of) {
  std::map<std::string, std::string> names;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    names[ranks[rank].host] = earlier.ranks[ranks_of[rank]].host;
  }
  const auto rename = [&names](std::string& host) {
    const auto name = names.find(host);
    host = name == names.end() ? host : name->second;
  };
  for (Rank& rank : ranks) {
    rename(rank.host);
  }
  for (Port& port : ports) {
    rename(port.host);
  }
  for (HostNetwork& network : networks) {
    rename(network.host);
  }
}

namespace {

// Among those of other links.
void Add(const Stress::Wrong& more, std::vector<Stress::Wrong>& all) {
  const auto same =
      std::find_if(all.begin(), all.end(), [&more](const Stress::Wrong& wrong) {
        return wrong.from == more.from && wrong.to == more.to;
      });
  if (same == all.end()) {
    all.push_back(more);
  } else {
    same->messages += more.messages;
    same->bytes += more.bytes;
  }
}

}  // namespace

void Measurements::TakeStress(const Measurements& later,
                              const std::vector<int>& ranks_of) {
  if (later.stress) {
    // With what was wrong before.
    Stress taken = stress.value_or(Stress());
    taken.seconds = later.stress->seconds;
    taken.messages = later.stress->messages;
    taken.bytes = later.stress->bytes;
    for (const Stress::Wrong& wrong : later.stress->wrong) {
      Add({ranks_of[wrong.from], ranks_of[wrong.to], wrong.messages,
           wrong.bytes},
          taken.wrong);
    }
    stress = std::move(taken);
  }
  for (Port& port : ports) {
    for (const Port& now : later.ports) {
      if (now.host == port.host && now.Name() == port.Name()) {
        port.after = now.after;
      }
    }
  }
  if (!later.networks.empty()) {
    networks = later.networks;
  }
  ending = later.ending;
  if (ending && ending->lost_rank >= 0) {
    ending->lost_rank = ranks_of[ending->lost_rank];
  }
}

std::string ToJson(const Measurements& of) {
  Json json = {{"ringpipe_interconnect", kFormat},
               {"version", of.version},
               {"date", of.date},
               {"way", of.way},
               {"seconds", of.seconds},
               {"ranks", OfRanks(of.ranks)},
               {"planes", OfPlanes(of.planes)},
               {"isolated", OfIsolated(of.isolated)},
               {"latencies", nullptr},
               {"patterns", OfPatterns(of.patterns)},
               {"stress", nullptr},
               {"ports", Json::array()},
               {"networks", OfNetworks(of.networks)},
               {"lost", OfLost(of.lost)},
               {"ending", nullptr}};
  if (of.latencies) {
    json["latencies"] = {
        {"median_s", OfSamples(of.latencies->median_s, /*whole=*/false)},
        {"p99_s", OfSamples(of.latencies->p99_s, /*whole=*/false)}};
  }
  if (of.stress) {
    json["stress"] = OfStress(*of.stress);
  }
  for (const Port& port : of.ports) {
    json["ports"].push_back(OfPort(port));
  }
  if (of.ending) {
    json["ending"] = {{"phase", of.ending->phase},
                      {"message", of.ending->message},
                      {"lost_rank", of.ending->lost_rank},
                      {"interrupted_by", of.ending->interrupted_by}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string PortsToJson(const std::vector<Port>& ports) {
  Json list = Json::array();
  for (const Port& port : ports) {
    list.push_back(OfPort(port));
  }
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::vector<Port>> PortsFromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<Port> ports;
  try {
    for (const Json& port : json) {
      ports.push_back(PortFrom(port));
    }
  } catch (const Json::exception& error) {
    return Wrong(error.what());
  }
  return ports;
}

Result<Measurements> FromJson(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return Wrong("it is no JSON");
  }
  try {
    MakePrintable(json);
    return Read(json);
  } catch (const Json::exception& error) {
    // A member that is missing, or of another type.
    return Wrong(error.what());
  }
}

}  // namespace ringpipe::validate
