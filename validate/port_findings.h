// What is wrong with ports, by what they say of themselves and beside others.
#ifndef RINGPIPE_VALIDATE_PORT_FINDINGS_H_
#define RINGPIPE_VALIDATE_PORT_FINDINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "validate/finding.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

// Each port against what it supports (an HCA's port has four lanes, or two
// where its cable may be split; an Ethernet interface its fastest mode; the PCI
// link its most), against the
// ports of the same device and number on other hosts, and where there are none
// against the others of its host; and counters of errors that grew between
// before and after.
std::vector<Finding> FindPortFaults(const std::vector<Port>& ports);

// What is of one port becomes one finding: the first of `findings`, which are
// sorted, has the sentences of the others in Finding::also. The first may be
// that a host is slow by that port.
void MergeByPort(const Measurements& measured, std::vector<Finding>& findings);

// What is wrong with a port in a few words, for a sentence about its host:
// "width 1X of 4X"; empty: nothing is.
std::string BriefPortFault(const std::vector<Port>& ports, const Port& port);

// A counter that grew, and by how much.
struct Growth {
  std::string name;
  std::uint64_t by = 0;
};
// All counters of a port that differ, but for those of traffic.
std::vector<Growth> GrownCounters(const Port& port);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PORT_FINDINGS_H_
