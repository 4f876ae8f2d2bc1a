// The exported conversions of ibv_rate: to and from Mbit/s, and to and from
// multiples of 2.5 Gbit/s, which only some of the rates are.
#include <infiniband/verbs.h>

namespace {

struct Rate {
  ibv_rate rate;
  int mbps;
  int multiple;  // -1: none
};

constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 2500, 1},       {IBV_RATE_5_GBPS, 5000, 2},
    {IBV_RATE_10_GBPS, 10000, 4},       {IBV_RATE_20_GBPS, 20000, 8},
    {IBV_RATE_30_GBPS, 30000, 12},      {IBV_RATE_40_GBPS, 40000, 16},
    {IBV_RATE_60_GBPS, 60000, 24},      {IBV_RATE_80_GBPS, 80000, 32},
    {IBV_RATE_120_GBPS, 120000, 48},    {IBV_RATE_14_GBPS, 14062, -1},
    {IBV_RATE_56_GBPS, 56250, -1},      {IBV_RATE_112_GBPS, 112500, -1},
    {IBV_RATE_168_GBPS, 168750, -1},    {IBV_RATE_25_GBPS, 25781, -1},
    {IBV_RATE_100_GBPS, 103125, -1},    {IBV_RATE_200_GBPS, 206250, -1},
    {IBV_RATE_300_GBPS, 309375, -1},    {IBV_RATE_28_GBPS, 28125, 11},
    {IBV_RATE_50_GBPS, 53125, 20},      {IBV_RATE_400_GBPS, 425000, 160},
    {IBV_RATE_600_GBPS, 637500, 240},   {IBV_RATE_800_GBPS, 850000, 320},
    {IBV_RATE_1200_GBPS, 1275000, 480},
};

}  // namespace

extern "C" {

int ibv_rate_to_mult(ibv_rate rate) {
  for (const Rate& known : kRates) {
    if (known.rate == rate) {
      return known.multiple;
    }
  }
  return -1;
}

ibv_rate mult_to_ibv_rate(int multiple) {
  for (const Rate& known : kRates) {
    if (known.multiple == multiple && multiple > 0) {
      return known.rate;
    }
  }
  return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate rate) {
  for (const Rate& known : kRates) {
    if (known.rate == rate) {
      return known.mbps;
    }
  }
  return -1;
}

ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate& known : kRates) {
    if (known.mbps == mbps) {
      return known.rate;
    }
  }
  return IBV_RATE_MAX;
}

}  // extern "C"
