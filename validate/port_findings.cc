#include "validate/port_findings.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "validate/format.h"

namespace ringpipe::validate {
namespace {

constexpr int kLanesOfAnHca = 4;

// Counters that say that bits were lost or a link broke: none may grow.
constexpr std::array<std::string_view, 14> kErrors = {
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "packet_seq_err",
    "out_of_sequence",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "roce_adp_retrans_to",
};
// Counters that say that links are full, which is no fault of theirs.
constexpr std::array<std::string_view, 6> kCongestion = {
    "port_xmit_wait", "port_xmit_discards",         "np_cnp_sent",
    "rp_cnp_handled", "np_ecn_marked_roce_packets", "out_of_buffer",
};

template <typename Names>
bool Has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsUp(const Port& port) { return port.state == "ACTIVE"; }

// The ports that should be like this one.
std::vector<const Port*> PeersOf(const std::vector<Port>& ports,
                                 const Port& port) {
  std::vector<const Port*> elsewhere, here;
  for (const Port& other : ports) {
    if (&other == &port || other.link_layer != port.link_layer) {
      continue;
    }
    if (other.host != port.host && other.device == port.device &&
        other.number == port.number) {
      elsewhere.push_back(&other);
    } else if (other.host == port.host) {
      here.push_back(&other);
    }
  }
  return elsewhere.empty() ? here : elsewhere;
}

// What more than half of them have, of those that say; nullopt: there is none.
template <typename Value, typename Get>
std::optional<Value> Majority(const std::vector<const Port*>& ports, Get get) {
  std::map<Value, std::size_t> votes;
  std::size_t all = 0;
  for (const Port* port : ports) {
    if (const Value value = get(*port); value != Value()) {
      ++votes[value];
      ++all;
    }
  }
  for (const auto& [value, count] : votes) {
    if (2 * count > all) {
      return value;
    }
  }
  return std::nullopt;
}

class PortJudge {
 public:
  PortJudge(const std::vector<Port>& ports, const Port& port)
      : port_(port), peers_(PeersOf(ports, port)) {
    CheckState();
    if (IsUp(port_)) {
      CheckLanes();
      CheckInterfaceSpeed();
      CheckRate();
      CheckMtu();
      CheckGidTypes();
      CheckPci();
    }
  }

  struct Fault {
    std::string brief;  // "width 1X of 4X"
    std::string text;   // the whole of it
    bool fault = true;
  };
  const std::vector<Fault>& faults() const { return faults_; }

 private:
  void CheckState() {
    if (IsUp(port_) || port_.state.empty()) {
      return;
    }
    const bool others_up =
        std::any_of(peers_.begin(), peers_.end(),
                    [](const Port* peer) { return IsUp(*peer); });
    const std::string how =
        "is " + port_.state +
        (port_.physical_state.empty()
             ? ""
             : " (physically " + port_.physical_state + ")");
    faults_.push_back({"port " + port_.state,
                       how + (others_up ? " where its peers are ACTIVE: check "
                                          "its cable and its switch port"
                                        : ""),
                       others_up});
  }

  void CheckLanes() {
    const int usual = Majority<int>(peers_, [](const Port& peer) {
                        return IsUp(peer) ? peer.lanes : 0;
                      }).value_or(0);
    // HDR100 and its like: a cable of four lanes that serves two ports.
    const bool may_be_split =
        port_.speed == "HDR" || port_.speed == "NDR" || port_.speed == "XDR";
    const int most =
        may_be_split && usual > 0 ? usual : std::max(usual, kLanesOfAnHca);
    // Ethernet's "1X" only says that the driver knows the speed in all.
    const bool ethernet = port_.link_layer == "Ethernet";
    const int expected =
        ethernet
            ? Majority<int>(peers_, [](const Port& peer) { return peer.lanes; })
                  .value_or(port_.lanes)
            : most;
    if (port_.lanes > 0 && port_.lanes < expected) {
      const std::string brief = "width " + std::to_string(port_.lanes) +
                                "X of " + std::to_string(expected) + "X";
      const bool split = may_be_split && usual == 0 && port_.lanes == 2;
      faults_.push_back({brief,
                         "trained at " + brief + " (" + port_.rate +
                             (split ? "): its cable is split in two, or damaged"
                                    : "): reseat or replace its cable"),
                         !split});
    }
  }

  // The switch, too, has to do it: a fault only where the peers' ports do.
  void CheckInterfaceSpeed() {
    if (port_.interface_megabits_per_s > 0 &&
        port_.interface_megabits_per_s < port_.interface_most_megabits_per_s) {
      const std::string speeds =
          Number(port_.interface_megabits_per_s / 1e3) + " of " +
          Number(port_.interface_most_megabits_per_s / 1e3) + " Gbit/s";
      const bool peers_are_faster =
          Majority<int>(peers_, [](const Port& peer) {
            return IsUp(peer) ? peer.interface_megabits_per_s : 0;
          }).value_or(0) > port_.interface_megabits_per_s;
      faults_.push_back(
          {"speed " + speeds,
           "runs at " + speeds + " that " + port_.interface + " supports" +
               (peers_are_faster
                    ? ": check its cable, its module, and what its "
                      "switch port is set to"
                    : ""),
           peers_are_faster});
    }
  }

  void CheckRate() {
    const double usual = Majority<double>(peers_, [](const Port& peer) {
                           return IsUp(peer) ? peer.gigabits_per_s : 0;
                         }).value_or(0);
    const bool explained =
        std::any_of(faults_.begin(), faults_.end(),
                    [](const Fault& fault) { return fault.fault; });
    if (!explained && port_.gigabits_per_s > 0 &&
        port_.gigabits_per_s < usual) {
      faults_.push_back({"rate " + port_.rate, "runs at " + port_.rate +
                                                   " where its peers run at " +
                                                   Number(usual) + " Gb/sec"});
    }
  }

  void CheckMtu() {
    const int usual = Majority<int>(peers_, [](const Port& peer) {
                        return peer.interface_mtu;
                      }).value_or(0);
    if (usual != 0 && port_.interface_mtu != 0 &&
        port_.interface_mtu != usual) {
      faults_.push_back({"MTU " + std::to_string(port_.interface_mtu),
                         "has MTU " + std::to_string(port_.interface_mtu) +
                             " on " + port_.interface +
                             " where its peers have " + std::to_string(usual)});
    }
  }

  void CheckGidTypes() {
    const auto text = [](const Port& port) {
      std::string joined;
      for (const std::string& type : port.gid_types) {
        joined += (joined.empty() ? "" : ", ") + type;
      }
      return joined;
    };
    const auto usual = Majority<std::string>(peers_, text);
    if (usual && !port_.gid_types.empty() && text(port_) != *usual) {
      faults_.push_back(
          {"GID types " + text(port_), "has addresses of " + text(port_) +
                                           " where its peers have " + *usual});
    }
  }

  void CheckPci() {
    if (port_.pci_lanes > 0 && port_.pci_lanes < port_.pci_most_lanes) {
      const std::string brief = "PCI width x" +
                                std::to_string(port_.pci_lanes) + " of x" +
                                std::to_string(port_.pci_most_lanes);
      faults_.push_back(
          {brief,
           "sits on a PCI link of " + brief.substr(4) + ": reseat the card",
           PeersHaveMore()});
    }
    if (port_.pci_gigatransfers_per_s > 0 &&
        port_.pci_gigatransfers_per_s < port_.pci_most_gigatransfers_per_s) {
      const std::string brief =
          "PCI speed " + Number(port_.pci_gigatransfers_per_s) + " of " +
          Number(port_.pci_most_gigatransfers_per_s) + " GT/s";
      faults_.push_back(
          {brief, "sits on a PCI link of " + brief.substr(4), PeersHaveMore()});
    }
  }

  // A card in a slot that cannot do more, as all its peers are, is no fault.
  bool PeersHaveMore() const {
    const auto width = [](const Port& port) {
      return port.pci_lanes * port.pci_gigatransfers_per_s;
    };
    return peers_.empty() ||
           Majority<double>(peers_, width).value_or(width(port_) + 1) >
               width(port_);
  }

  static std::string Number(double value) {
    std::string text = std::to_string(value);
    text.erase(text.find_last_not_of('0') + 1);
    return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
  }

  const Port& port_;
  const std::vector<const Port*> peers_;
  std::vector<Fault> faults_;
};

void AddCounters(const Port& port, std::vector<Finding>& findings) {
  for (const Growth& growth : GrownCounters(port)) {
    const bool error = Has(kErrors, growth.name);
    if (!error && !Has(kCongestion, growth.name)) {
      continue;
    }
    Finding finding;
    finding.kind = Finding::Kind::kErrorCounter;
    finding.fault = error;
    finding.host = port.host;
    finding.port = port.Name();
    finding.weight = static_cast<double>(growth.by);
    finding.text = "host " + port.host + ": " + growth.name + " of port " +
                   port.Name() + " grew by " + WithCommas(growth.by) +
                   (error ? " during the test"
                          : " during the test: links "
                            "were full, not broken");
    findings.push_back(std::move(finding));
  }
}

// Whether the finding says that its host, or a rank of it, is slow to other
// hosts by rails of which the port is one.
bool IsSlowBy(const Measurements& measured, const Finding& finding,
              const std::string& port) {
  if (finding.kind < Finding::Kind::kSlowHost ||
      finding.kind > Finding::Kind::kSlowReceiver) {
    return false;
  }
  const int rail = measured.planes[finding.plane].rail;
  const auto uses_port = [&](int number) {
    const Rank& rank = measured.ranks[number];
    const auto at = std::find(rank.rails.begin(), rank.rails.end(), port);
    return rank.host == finding.host && at != rank.rails.end() &&
           (rail < 0 || at - rank.rails.begin() == rail);
  };
  return std::any_of(finding.links.begin(), finding.links.end(),
                     [&](const std::pair<int, int>& link) {
                       const auto [from, to] = link;
                       return measured.ranks[from].host !=
                                  measured.ranks[to].host &&
                              (uses_port(from) || uses_port(to));
                     });
}

}  // namespace

std::vector<Finding> FindPortFaults(const std::vector<Port>& ports) {
  std::vector<Finding> findings;
  for (const Port& port : ports) {
    const PortJudge judge(ports, port);
    for (const PortJudge::Fault& fault : judge.faults()) {
      Finding finding;
      finding.kind = Finding::Kind::kPort;
      finding.fault = fault.fault;
      finding.host = port.host;
      finding.port = port.Name();
      finding.text =
          "host " + port.host + ": port " + port.Name() + " " + fault.text;
      findings.push_back(std::move(finding));
    }
    AddCounters(port, findings);
  }
  return findings;
}

void MergeByPort(const Measurements& measured, std::vector<Finding>& findings) {
  std::vector<Finding> merged;
  for (Finding& finding : findings) {
    const auto first =
        std::find_if(merged.begin(), merged.end(), [&](const Finding& other) {
          return !finding.port.empty() && other.host == finding.host &&
                 (other.port == finding.port ||
                  IsSlowBy(measured, other, finding.port));
        });
    if (first == merged.end()) {
      merged.push_back(std::move(finding));
    } else {
      first->also.push_back(std::move(finding.text));
    }
  }
  findings = std::move(merged);
}

std::string BriefPortFault(const std::vector<Port>& ports, const Port& port) {
  std::string brief;
  const PortJudge judge(ports, port);
  for (const PortJudge::Fault& fault : judge.faults()) {
    if (fault.fault) {
      brief += (brief.empty() ? "" : ", ") + fault.brief;
    }
  }
  for (const Growth& growth : GrownCounters(port)) {
    if (Has(kErrors, growth.name)) {
      brief += (brief.empty() ? "" : ", ") + growth.name + " +" +
               WithCommas(growth.by);
    }
  }
  return brief;
}

std::vector<Growth> GrownCounters(const Port& port) {
  std::vector<Growth> grown;
  for (const auto& [name, after] : port.after) {
    const auto before = port.before.find(name);
    const bool traffic = name.find("_data") != std::string::npos ||
                         name.find("packets") != std::string::npos ||
                         name.find("_requests") != std::string::npos;
    if (before != port.before.end() && after > before->second &&
        (!traffic || Has(kCongestion, name))) {
      grown.push_back({name, after - before->second});
    }
  }
  return grown;
}

}  // namespace ringpipe::validate
